"""Small language models of every family, compiled and verified beside transformers; edges of the paged cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pydoit.errors import UserError
from pydoit.runtime.language import LanguageModel
from tests.language import CACHE, SMALL, language_spec, loaded, run_language_chain, verified_language, write_checkpoint

LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "mistral": ("mistral", {"sliding_window": 9}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str, tmp_path: Path) -> None:
    kind, values = FAMILIES[family]
    write_checkpoint(tmp_path / "fetch" / "model", kind, **values)
    spec = language_spec()
    out = run_language_chain(spec, tmp_path)
    measured = verified_language(spec, out, tmp_path, tolerance={"max_abs": 1e-4, "greedy": 1.0, "top1": 1.0})
    assert measured["passed"]
    assert measured["batched_max_abs"] < 1e-4
    assert measured["positions"] == 120


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kept", "bound"),
    [
        ({"precision": "bfloat16"}, 0.02),
        ({"scheme": "int8"}, 0.02),
        ({"scheme": "int8", "group_size": 32}, 0.01),
        ({"scheme": "int4", "group_size": 32, "symmetric": False}, 0.5),
    ],
    ids=str,
)
def test_kept_formats(kept: dict[str, Any], bound: float, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fetch" / "model", "llama")
    spec = language_spec(kept=kept)
    out = run_language_chain(spec, tmp_path)
    measured = verified_language(spec, out, tmp_path, tolerance={"max_abs": None, "greedy": None, "divergence": bound})
    assert 0 < measured["divergence"] < bound
    assert measured["chunked_max_abs"] < 1e-2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = tmp_path_factory.mktemp("language")
    write_checkpoint(folder / "fetch" / "model", "llama")
    return loaded(run_language_chain(language_spec(), folder))


def alone(model: LanguageModel, tokens: list[int]) -> np.ndarray[Any, Any]:
    sequence = model.add()
    try:
        return model.prefill(sequence, tokens)
    finally:
        model.drop(sequence)


def test_one_token_and_a_full_cache(model: LanguageModel) -> None:
    assert alone(model, [5]).shape == (SMALL["vocab_size"],)
    capacity = CACHE["tokens"]
    whole = np.random.default_rng(0).integers(0, SMALL["vocab_size"], capacity)
    sequence = model.add()
    assert np.isfinite(model.prefill(sequence, whole)).all()
    with pytest.raises(UserError, match="full"):
        model.decode([sequence], [1])
    with pytest.raises(UserError, match="full"):
        model.prefill(sequence, [1])
    model.drop(sequence)
    other = model.add()
    with pytest.raises(UserError, match="full"):
        model.prefill(other, [*whole, 1])
    assert model.length(other) == 0
    model.drop(other)
    np.testing.assert_array_equal(alone(model, [5, 6, 7]), alone(model, [5, 6, 7]))


def test_wrong_tokens_are_refused(model: LanguageModel) -> None:
    sequence = model.add()
    for tokens in ([], [SMALL["vocab_size"]], [-1]):
        with pytest.raises(UserError):
            model.prefill(sequence, tokens)
    model.prefill(sequence, [1, 2])
    with pytest.raises(UserError, match="different sequences"):
        model.decode([sequence, sequence], [1, 2])
    model.drop(sequence)
    with pytest.raises(UserError, match="no sequence"):
        model.decode([sequence], [1])


def test_many_sequences_with_drops_equal_one_at_a_time(model: LanguageModel) -> None:
    """32 sequences of random lengths come and go; each ends with the logits that it has alone."""
    generator = np.random.default_rng(7)
    texts = [generator.integers(0, SMALL["vocab_size"], generator.integers(1, 24)).tolist() for _ in range(32)]
    waiting, running, checked = list(range(32)), {}, 0
    while waiting or running:
        while waiting and len(running) < model.sequences and model.pool.free_tokens >= 48:
            number = waiting.pop(0)
            sequence = model.add()
            start = int(generator.integers(1, len(texts[number]) + 1))
            running[sequence] = [number, start, model.prefill(sequence, texts[number][:start])]
        ended = [sequence for sequence, (number, at, _) in running.items() if at == len(texts[number])]
        for sequence in ended:
            number, _, logits = running.pop(sequence)
            model.drop(sequence)
            if not running:
                np.testing.assert_allclose(logits, alone(model, texts[number]), atol=2e-4)
                checked += 1
            else:
                texts[number].append(logits)
        for sequence in [item for item in list(running) if generator.random() < 0.05]:
            number, *_ = running.pop(sequence)  # dropped in the middle, and asked for again
            model.drop(sequence)
            waiting.append(number)
        if running:
            order = list(running)
            found = model.decode(order, [texts[running[item][0]][running[item][1]] for item in order])
            for item, logits in zip(order, found, strict=True):
                running[item][1] += 1
                running[item][2] = logits
    for tokens in texts:
        if isinstance(tokens[-1], np.ndarray):
            *ids, logits = tokens
            np.testing.assert_allclose(logits, alone(model, ids), atol=2e-4)
            checked += 1
    assert checked == 32
    assert not model.pool.sequences


def test_fork_shares_a_beginning(model: LanguageModel) -> None:
    first = model.add()
    model.prefill(first, [1, 2, 3, 4, 5, 6])
    second = model.fork(first)
    logits = model.decode([first, second], [7, 8])
    np.testing.assert_allclose(logits[0], alone(model, [1, 2, 3, 4, 5, 6, 7]), atol=2e-4)
    np.testing.assert_allclose(logits[1], alone(model, [1, 2, 3, 4, 5, 6, 8]), atol=2e-4)
    model.drop(first)
    np.testing.assert_allclose(model.decode([second], [9])[0], alone(model, [1, 2, 3, 4, 5, 6, 8, 9]), atol=2e-4)
    model.drop(second)


@pytest.mark.filterwarnings("ignore")
def test_checkpoints_that_do_not_fit(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    from pydoit.models.checkpoint import load_config, open_checkpoint

    folder = write_checkpoint(tmp_path / "model", "llama")
    config = load_config("transformers", folder, None)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.0.extra.weight"] = tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, file)
    with pytest.raises(UserError, match=r"lacks model.layers.1.mlp.up_proj.weight; has unknown model.layers.0.extra.weight"):
        open_checkpoint("transformers", folder, None, config)
    content = file.read_bytes()
    for size in (4, 100, len(content) - 7):
        file.write_bytes(content[:size])
        with pytest.raises(UserError, match="no whole safetensors file"):
            open_checkpoint("transformers", folder, None, config)


@pytest.mark.filterwarnings("ignore")
def test_checkpoints_of_other_types_and_twice(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    from pydoit.models.checkpoint import load_config, open_checkpoint

    folder = write_checkpoint(tmp_path / "model", "llama")
    config = load_config("transformers", folder, None)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    save_file({name: tensors[name]}, folder / "consolidated.safetensors")
    open_checkpoint("transformers", folder, None, config)  # a file beside model.safetensors does not count
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    with pytest.raises(UserError, match=rf"other.safetensors and consolidated.safetensors both hold {name}; remove one"):
        open_checkpoint("transformers", folder, None, config)
    (folder / "consolidated.safetensors").unlink()
    save_file({**tensors, name: tensors[name].astype(np.int8)}, folder / "other.safetensors")
    with pytest.raises(UserError, match=rf"{name} \(I8\) are not of F32, F16, BF16, F64; use the unquantized checkpoint"):
        open_checkpoint("transformers", folder, None, config)
