"""Text from a compiled model by the Python interface: what it recites, how it samples, batches, and faults of its folder."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pydoit.cpus import X86_LEVELS
from pydoit.errors import UserError
from pydoit.runtime import Completion, Sampling, TextModel, load, load_text_model
from tests.language import language_spec, run_language_chain
from tests.reciter import TEXT, write_reciter

SYMBOL = "\U0001f9ff"
Logits = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reciter")
    write_reciter(folder / "fetch/model")
    return run_language_chain(language_spec(), folder)["package"]


@pytest.fixture(scope="module")
def model(artifact: Path) -> TextModel:
    return load_text_model(artifact)


def sampled(model: TextModel, sampling: Sampling, max_tokens: int = 24) -> Completion:
    return model.generate("Hi", sampling=sampling, max_tokens=max_tokens).result()


def scored(model: TextModel, completion: Completion) -> Logits:
    """The model's logits before each sampled token, without rows that pad the embedding."""
    prompt = model.tokenizer.chat([{"role": "user", "content": "Hi"}])
    sequence = model.model.add()
    try:
        logits = model.model.score(sequence, [*prompt, *completion.tokens])
    finally:
        model.model.drop(sequence)
    return logits[len(prompt) - 1 :, : model.tokenizer.vocabulary]


def test_a_chat_is_answered_in_pieces_that_make_the_text(model: TextModel) -> None:
    generation = model.generate("Hi")
    pieces = list(generation)
    done = generation.completion
    assert "".join(pieces) == done.text == TEXT
    assert len(pieces) > 10
    assert all(pieces)
    assert SYMBOL in pieces  # three tokens, shown at once
    messages = [{"role": "user", "content": "Hi"}]
    assert done.prompt_tokens == len(model.tokenizer.chat(messages))
    assert done.tokens == model.tokenizer.encode(TEXT)
    assert [item.token for item in done.sampled] == [*done.tokens, 2]
    assert done.finish_reason == "stop"
    assert model.generate(messages).result().tokens == done.tokens
    longer = model.generate([{"role": "system", "content": "Be kind."}, *messages]).result()
    assert (longer.text, longer.prompt_tokens > done.prompt_tokens) == (TEXT, True)
    assert not model.model.pool.sequences


def test_a_raw_prompt_goes_on_without_template(model: TextModel) -> None:
    done = model.generate("Hello,", raw=True).result()
    assert (done.text, done.prompt_tokens) == (" world! " + SYMBOL + "The capital", 4)


def test_an_end_inside_a_character_shows_no_half_of_it(model: TextModel) -> None:
    whole = model.tokenizer.encode(TEXT)
    for count in range(1, len(whole) + 1):
        generation = model.generate("Hi", max_tokens=count)
        *pieces, last = generation
        assert "\ufffd" not in "".join(pieces)
        assert generation.completion.text == "".join([*pieces, last]) == model.tokenizer.decode(whole[:count])
        assert generation.completion.text.rstrip("\ufffd") in TEXT
        assert generation.completion.finish_reason == "length"


def test_every_part_of_the_text_stops_it(model: TextModel) -> None:
    for first in range(len(TEXT)):
        for size in (1, 2, 5, 11):
            stop = TEXT[first : first + size]
            generation = model.generate("Hi", stop=[stop, "not in it"])
            shown = "".join(generation)
            assert shown == generation.completion.text == TEXT[: TEXT.index(stop)]
            assert generation.completion.finish_reason == "stop"
    assert model.generate("Hi", stop="world").result().text == "Hello, "


def test_an_abandoned_answer_frees_its_place(model: TextModel) -> None:
    generation = model.generate("Hi")
    next(iter(generation))
    assert model.model.pool.sequences
    generation.close()
    assert not model.model.pool.sequences
    assert TEXT.startswith(generation.completion.text)
    assert generation.completion.finish_reason is None


def test_answers_side_by_side_do_not_mix(model: TextModel) -> None:
    first, second = model.generate("Hi"), model.generate("Hello", raw=True)
    texts = ["", ""]
    for index, piece in [item for pair in zip(first, second, strict=False) for item in enumerate(pair)]:
        texts[index] += piece
    assert texts[0] + first.result().text.removeprefix(texts[0]) == TEXT
    assert second.result().text == TEXT.removeprefix("Hello")


def test_log_probabilities_are_those_of_the_model(model: TextModel) -> None:
    done = sampled(model, Sampling(temperature=2, top_k=5, repetition_penalty=1.5, seed=1, logprobs=3))
    logits = scored(model, done).astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    for item, row in zip(done.sampled, expected, strict=False):
        # decode and score add up in another order: float32 rounding of logits below 10, over 48 products.
        assert abs(item.logprob - row[item.token]) < 1e-4
        assert [best.token for best in item.top] == np.argsort(-row, kind="stable")[:3].tolist()
        np.testing.assert_allclose([best.logprob for best in item.top], np.sort(row)[::-1][:3], atol=1e-4)


def reference(logits: Logits, history: list[int], options: Sampling, random: np.random.Generator) -> int:
    """The next token by a full sort of the vocabulary in float64, in transformers' order of the steps."""
    scores = logits.astype(np.float64)
    for token in set(history):
        factor = options.repetition_penalty
        scores[token] = scores[token] * factor if scores[token] < 0 else scores[token] / factor
    if options.temperature == 0:
        return int(scores.argmax())
    scores /= options.temperature
    if options.top_k:
        scores[scores < np.sort(scores)[-options.top_k]] = -np.inf
    probabilities = np.exp(scores - scores.max())
    probabilities /= probabilities.sum()
    order = np.argsort(-probabilities, kind="stable")
    before = np.cumsum(probabilities[order]) - probabilities[order]
    probabilities[order[before >= options.top_p]] = 0
    probabilities[probabilities < options.min_p * probabilities.max()] = 0
    running = probabilities.cumsum()
    return int(np.searchsorted(running, (1 - random.random()) * running[-1]))


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0}, {"temperature": 0, "repetition_penalty": 3.0}, {"temperature": 2.0}, {"top_k": 4, "temperature": 3.0},
        {"top_p": 0.7, "temperature": 2.0}, {"min_p": 0.2, "temperature": 3.0}, {"repetition_penalty": 1.7, "temperature": 1.5},
        {"top_k": 40, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.1, "temperature": 2.5},
    ],
    ids=str,
)  # fmt: skip
def test_sampling_is_that_of_a_numpy_reference(model: TextModel, options: dict[str, Any]) -> None:
    for seed in range(3):
        sampling = Sampling(**options, seed=seed)
        done = sampled(model, sampling)
        random = np.random.Generator(np.random.Philox(seed))
        history = model.tokenizer.chat([{"role": "user", "content": "Hi"}])
        for row, item in zip(scored(model, done), done.sampled, strict=False):
            assert item.token == reference(row, history, sampling, random)
            history.append(item.token)


def test_seeds_repeat_and_differ(model: TextModel) -> None:
    texts = [sampled(model, Sampling(temperature=3, seed=seed)).tokens for seed in (1, 1, 2, 2**64 - 1)]
    assert texts[0] == texts[1]
    assert len({tuple(text) for text in texts}) == 3
    unseeded = [sampled(model, Sampling(temperature=3)).tokens for _ in range(3)]
    assert unseeded[0] != unseeded[1] or unseeded[1] != unseeded[2]


def test_rows_that_pad_the_embedding_are_never_drawn(model: TextModel) -> None:
    assert model.model.vocabulary == model.tokenizer.vocabulary + 2
    drawn = [token for seed in range(40) for token in sampled(model, Sampling(temperature=100, seed=seed), 50).tokens]
    assert max(drawn) < model.tokenizer.vocabulary


def test_a_batch_equals_one_at_a_time(model: TextModel) -> None:
    prompts = ["Hello", "Hello, world", "Th", "zzz", "a" * 30, TEXT, "b", "c" * 50, SYMBOL]
    for most in (1, 12, 60):
        alone = [model.generate(prompt, raw=True, max_tokens=most).result() for prompt in prompts]
        together = model.generate_batch(prompts, raw=True, max_tokens=most)
        assert [(item.text, item.tokens, item.finish_reason) for item in together] == [
            (item.text, item.tokens, item.finish_reason) for item in alone
        ]
    assert not model.model.pool.sequences
    assert model.generate_batch([]) == []


def test_a_batch_keeps_room_for_answers_that_run(model: TextModel) -> None:
    """Five answers of 70 tokens do not fit 128 at once; none is cut short for another."""
    hot = Sampling(temperature=50, seed=3)
    done = model.generate_batch(["ab"] * 5, raw=True, max_tokens=70, sampling=hot)
    assert {len(item.tokens) for item in done if item.finish_reason == "length"} == {70}
    assert len({tuple(item.tokens) for item in done}) == 1


def test_a_batch_where_no_sequence_is_free_is_an_error_and_not_a_wait(model: TextModel) -> None:
    held = [model.model.add() for _ in range(model.model.sequences)]
    for call in (lambda: model.generate_batch(["Hi"]), lambda: model.generate("Hi").result()):
        with pytest.raises(UserError, match="its maximum"):
            call()
    for sequence in held:
        model.model.drop(sequence)


def test_a_full_cache_ends_the_text(model: TextModel) -> None:
    capacity = model.model.capacity
    done = model.generate("zz", raw=True, max_tokens=10_000, sampling=Sampling(temperature=50, seed=5)).result()
    assert (done.finish_reason, done.prompt_tokens + len(done.tokens)) == ("length", capacity + 1)
    with pytest.raises(
        UserError, match=rf"has {capacity + 2} tokens; the model's context is 256 and its cache holds {capacity}"
    ):
        model.generate("z" * (capacity - 1) + "Hello", raw=True)
    assert model.generate("z" * (capacity - 3) + "Hello", raw=True).result().text == ","
    held = model.model.add()
    model.model.prefill(held, [1] * (capacity - 8))
    with pytest.raises(UserError, match="the KV cache is full"):
        model.generate("z" * 20, raw=True).result()
    model.model.drop(held)
    assert not model.model.pool.sequences


def test_forked_sequences_go_their_own_ways(model: TextModel) -> None:
    runner, ids = model.model, model.tokenizer.encode
    first = runner.add()
    runner.prefill(first, ids("Hello"))
    second = runner.fork(first)
    comma, letter = ids(",")[0], ids("Th")[0]
    rows = runner.decode([first, second], [comma, letter])
    found = [model.tokenizer.decode([int(row.argmax())]) for row in rows]
    assert found == [" w", "e"]
    runner.drop(first)
    assert model.tokenizer.decode([int(runner.decode([second], [comma])[0].argmax())]) == " w"
    runner.drop(second)


ODD_PROMPTS = [
    "\x00\x01\x1b[31m",
    "\u202e\u05e9\u05dc\u05d5\u05dd",
    "\ufeff",
    "e\u0301\u200d",
    "🏳️‍🌈",
    "<|im_end|>",
    "   ",
    "\r\n\r\n",
    "{{ 1/0 }}",
    "<0xFF>",
]


@pytest.mark.parametrize("prompt", ODD_PROMPTS, ids=ascii)
def test_odd_prompts(model: TextModel, prompt: str) -> None:
    assert model.generate(prompt).result().text == TEXT
    assert model.generate(f"{prompt}Hello", raw=True).result().text == TEXT.removeprefix("Hello")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"prompt": "a\ud83d"}, "no valid Unicode"),
        ({"prompt": "", "raw": True}, "has no tokens"),
        ({"prompt": "ab " * 350_000}, "shorten it"),
        ({"prompt": None}, "the prompt is 'None'; a prompt is text, or the messages"),
        ({"prompt": []}, "a prompt is text, or the messages"),
        ({"prompt": [{"role": "user", "content": "x"}], "raw": True}, "a raw prompt is text"),
        ({"prompt": {"role": "user", "content": "x"}}, "a prompt is text, or the messages"),
        ({"prompt": [{"content": "x"}]}, "a chat message is"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens is 0; give a whole number"),
        ({"prompt": "x", "max_tokens": 1.5}, "max_tokens is 1.5; give a whole number"),
        ({"prompt": "x", "stop": [3]}, "a stop string is 3; give text"),
        ({"prompt": "x", "stop": ["a", ""]}, "a stop string is empty"),
    ],
)
def test_wrong_arguments_are_named_at_once(model: TextModel, arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        model.generate(**arguments)
    assert not model.model.pool.sequences


def test_several_prompts_are_no_text(model: TextModel) -> None:
    with pytest.raises(UserError, match="the prompts are one text; give a list"):
        model.generate_batch("Hi")


@pytest.mark.parametrize("tokens", [[1.5], ["a"], [[1]], [2**40], [True], [], None, 5], ids=str)
def test_tokens_that_are_none(model: TextModel, tokens: Any) -> None:
    sequence = model.model.add()
    with pytest.raises(UserError, match="token id"):
        model.model.prefill(sequence, tokens)
    model.model.drop(sequence)


def test_neither_torch_nor_transformers_nor_the_compiler_is_imported(artifact: Path) -> None:
    script = (
        "import sys; from pydoit.runtime import load_text_model\n"
        "print(load_text_model(sys.argv[1]).generate('Hi').result().text)\n"
        "print([name for name in ('torch', 'transformers', 'tvm', 'pydantic', 'gguf', 'doit') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(artifact)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [TEXT, "[]"]


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def edit_header(folder: Path, old: bytes, new: bytes) -> None:
    """Change the header of the weights, whose length stays."""
    path = folder / "weights/model.safetensors"
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new.ljust(len(old)), 1))


def cut_weights(folder: Path) -> None:
    """A manifest that agrees with the cut file: a build of a broken disk."""
    os.truncate(folder / "weights/model.safetensors", 5000)
    edit_manifest(folder, lambda values: values["weights"][0].update(bytes=5000))


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "no readable manifest.json"),
    "a list": (lambda folder: (folder / "manifest.json").write_text("[]"), "schema None; this version reads 1"),
    "newer": (lambda folder: edit_manifest(folder, lambda values: values.update(schema=2)), "schema 2; this version reads 1"),
    "lacking": (lambda folder: edit_manifest(folder, lambda values: values.pop("params")), "manifest.json lacks params"),
    "no library": (lambda folder: (folder / "lib.so").unlink(), "lib.so is missing or has another size"),
    "cut": (
        lambda folder: os.truncate(folder / "weights/model.safetensors", 5000),
        "model.safetensors is missing or has another",
    ),
    "cut twice": (cut_weights, "the weights cannot be read .*cut off"),
    "other type": (lambda folder: edit_header(folder, b'"F32"', b'"I32"'), r"is int32 \[.*\], the library takes float32"),
    "other shape": (lambda folder: edit_header(folder, b"[52,48,8]", b"[48,52,8]"), "the library takes float32"),
    "no tokenizer": (lambda folder: shutil.rmtree(folder / "tokenizer"), "there is no tokenizer"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_folders(artifact: Path, fault: str, tmp_path: Path) -> None:
    change, text = FAULTS[fault]
    shutil.copytree(artifact, tmp_path / "x")
    change(tmp_path / "x")
    with pytest.raises(UserError, match=text) as raised:
        load_text_model(tmp_path / "x")
    assert "\n" not in str(raised.value)


def test_a_library_that_is_none(artifact: Path, tmp_path: Path) -> None:
    shutil.copytree(artifact, tmp_path / "x")
    (tmp_path / "x/lib.so").write_bytes(bytes((artifact / "lib.so").stat().st_size))
    with pytest.raises(UserError, match=r"lib.so: the library cannot be loaded \(invalid ELF header\); build or copy it again"):
        load_text_model(tmp_path / "x")


def test_a_library_that_was_replaced_is_loaded_anew(artifact: Path, tmp_path: Path) -> None:
    """dlopen would take the path for the library that it knows."""
    shutil.copytree(artifact, tmp_path / "x")
    model = load_text_model(tmp_path / "x")
    assert load_text_model(tmp_path / "x").generate("Hi").result().text == TEXT
    (tmp_path / "other").write_bytes(bytes((artifact / "lib.so").stat().st_size))
    (tmp_path / "other").replace(tmp_path / "x/lib.so")
    with pytest.raises(UserError, match="invalid ELF header"):
        load_text_model(tmp_path / "x")
    assert model.generate("Hi").result().text == TEXT


def test_a_library_for_wider_vectors_than_this_machine_has(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("pydoit.cpus.cpu_flags", lambda: frozenset(X86_LEVELS[0][1]))
    with pytest.raises(UserError, match=r"the library is for x86-64-v3 CPUs and this is .*; build it with target\.arch"):
        load_text_model(artifact)


def test_the_loader_for_other_models_and_wrong_threads(artifact: Path) -> None:
    with pytest.raises(UserError, match=r"holds a language model; load it with pydoit\.runtime\.load_text_model"):
        load(artifact)
    with pytest.raises(UserError, match="threads is -1"):
        load_text_model(artifact, threads=-1)


def test_a_folder_that_was_moved_and_cannot_be_written(artifact: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere é/model"
    shutil.copytree(artifact, moved)
    for path in (*moved.rglob("*"), moved):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat().st_mtime_ns for path in moved.rglob("*")}
    assert load_text_model(moved).generate("Hi").result().text == TEXT
    assert before == {path: path.stat().st_mtime_ns for path in moved.rglob("*")}
    for path in (moved, *moved.rglob("*")):
        path.chmod(0o755)


def test_figures(model: TextModel) -> None:
    done = model.generate("Hi").result()
    assert done.prefill_rate > 0
    assert done.decode_rate > 0
    assert Completion(3).decode_rate == Completion(3).prefill_rate == 0
    assert math.isfinite(done.decode_seconds)
    assert str(Completion(3)) == "prefill 3 tokens, 0.0 tokens/s; decode 0 tokens, 0.0 tokens/s"
