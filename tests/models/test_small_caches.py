"""Caches and extents at their edges, through all stages: one page, one sequence, chunks of one token, small windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pydoit.errors import UserError
from pydoit.models.config import decoder_config
from pydoit.models.formats import check_exclude
from pydoit.models.spec import WeightSpec
from pydoit.runtime import load_text_model
from pydoit.stages import language_profile
from tests.language import CPU, SMALL, language_spec, run_language_chain, verified_language, write_checkpoint
from tests.reciter import TEXT, write_reciter


def profiled(spec: dict[str, Any], out: dict[str, Path], folder: Path) -> list[tuple[int, int]]:
    """Contexts and numbers of sequences that were measured."""
    shapes = {"prompt": [8, 128], "context": [1, 10, 128], "sequences": [1, 2, 3]}
    values = {"cache": spec["cache"], "shapes": shapes, "target": CPU, "warmup": 1, "repeat": 30}
    measured = language_profile.run(language_profile.Spec.model_validate(values), out, folder)
    assert all(case["tokens_per_second"] > 0 for case in (*measured["prefill"], *measured["decode"]))
    for case in measured["decode"]:
        held = case["kv_cache"]
        assert 0 < held["utilization"] <= 1
        assert 0 <= held["fragmentation"] < 1
    return [(case["context"], case["sequences"]) for case in measured["decode"]]


@pytest.mark.filterwarnings("ignore")
def test_one_page_one_sequence_and_chunks_of_one_token(tmp_path: Path) -> None:
    write_reciter(tmp_path / "fetch/model")
    spec = language_spec(cache={"tokens": 16, "sequences": 1, "page_size": 16, "prefill_chunk": 1})
    out = run_language_chain(spec, tmp_path)
    measured = verified_language(spec, out, tmp_path)
    assert measured["passed"]
    assert measured["batched_max_abs"] is None
    assert profiled(spec, out, tmp_path) == [(1, 1), (10, 1)]
    model = load_text_model(out["package"])
    for prompt in ("Hello", "zzzHello"):
        done = model.generate(prompt, raw=True).result()
        assert TEXT.removeprefix("Hello").startswith(done.text)
        assert done.prompt_tokens + len(done.tokens) <= 17
    assert [item.text for item in model.generate_batch(["Hello, world"] * 3, raw=True)] == [
        TEXT.removeprefix("Hello, world")
    ] * 3
    with pytest.raises(UserError, match="its cache holds 16; shorten it"):
        model.generate("z" * 17, raw=True)


@pytest.mark.filterwarnings("ignore")
def test_a_window_in_a_cache_not_much_larger(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fetch/model", "mistral", sliding_window=5)
    spec = language_spec(cache={"tokens": 12, "sequences": 1, "page_size": 4, "prefill_chunk": 4})
    out = run_language_chain(spec, tmp_path)
    assert verified_language(spec, out, tmp_path)["positions"] == 120
    assert profiled(spec, out, tmp_path) == [(1, 1), (10, 1)]


@pytest.mark.filterwarnings("ignore")
def test_windows_in_some_layers_odd_extents_and_pages_that_do_not_divide(tmp_path: Path) -> None:
    extents = {"hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 33}
    windows = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1, "max_position_embeddings": 60}
    write_checkpoint(tmp_path / "fetch/model", "qwen2", **extents, **windows)
    spec = language_spec(cache={"tokens": 100, "sequences": 3, "page_size": 7, "prefill_chunk": 13})
    out = run_language_chain(spec, tmp_path)
    measured = verified_language(spec, out, tmp_path)
    assert measured["passed"]
    assert measured["batched_max_abs"] < 1e-4
    assert profiled(spec, out, tmp_path) == [(size, count) for size in (1, 10) for count in (1, 2, 3)]


def test_patterns_that_leave_out_nothing_are_named() -> None:
    config = decoder_config({**SMALL, "model_type": "llama"})
    check_exclude(config, WeightSpec(scheme="int4", exclude=("head", "layers.*.qkv")))
    with pytest.raises(UserError, match=r"'layers\.\*\.kqv' matches no parameter; did you mean 'layers\.\*\.qkv'"):
        check_exclude(config, WeightSpec(scheme="int4", exclude=("head", "layers.*.kqv")))
