"""The quantize stage: the same bytes twice, blocks that the weights stage takes, calibration that cannot be, and a build."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_tokenizers
import torch
from conftest import TestWorkspace
from language import write_checkpoint
from reciter import make_reciter_workspace
from safetensors.torch import load_file, save_file

from pydoit.errors import UserError
from pydoit.kernels.cpu.weight_format import dequantize
from pydoit.models import calibration
from pydoit.models.checkpoint import open_checkpoint
from pydoit.models.config import decoder_config, read_values
from pydoit.models.quantized_blocks import BlockCheckpoint
from pydoit.stages import language_quantize

KEPT = {"scheme": "int4", "group_size": 32}
SHORT = {"windows": 3, "window": 64}


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """The stage leaves one thread to torch, which other tests need not have."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def quantized(folder: Path, **values: Any) -> tuple[Path, dict[str, Any]]:
    """The stage's file and measurements for the checkpoint in folder/fetch/model."""
    chosen = {"source": "transformers", "kept": KEPT, "text": None, **SHORT, **values}
    out = folder / f"quantize{len(list(folder.glob('quantize*')))}"
    out.mkdir()
    inputs = {name: folder / name for name in ("fetch", "tokenizer", "calibration") if (folder / name).exists()}
    measured = language_quantize.run(language_quantize.Spec.model_validate(chosen), inputs, out)
    return out / language_quantize.FILE, measured


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "fetch/model", "llama")


def test_twice_the_same_bytes(tmp_path: Path, checkpoint: Path) -> None:
    first, measured = quantized(tmp_path)
    torch.set_num_threads(2)
    assert first.read_bytes() == quantized(tmp_path)[0].read_bytes()
    assert [layer["name"] for layer in measured["layers"]] == [
        f"layers.{layer}.{name}" for layer in range(2) for name in ("qkv", "output", "gate_up", "down")
    ]
    assert all(layer["error"] < layer["nearest_error"] and layer["sqnr_db"] > 10 for layer in measured["layers"])


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_weights_stage_takes_the_blocks(tmp_path: Path, checkpoint: Path, symmetric: bool) -> None:
    """An odd number of channels, and groups that do not divide the depth of 80."""
    kept = {**KEPT, "symmetric": symmetric, "exclude": ["layers.1.down"]}
    path, _ = quantized(tmp_path, kept=kept)
    config = decoder_config(read_values(checkpoint / "config.json"))
    original = open_checkpoint("transformers", checkpoint, None, config)
    blocks = BlockCheckpoint(path, original)
    name = "model.layers.0.mlp.down_proj.weight"
    found = blocks.blocks(name, slice(3, 9))
    assert found is not None
    assert found.values.shape == (6, 80)
    assert (found.minimum is None) == symmetric
    assert np.array_equal(blocks.read(name), original.read(name))
    assert np.abs(dequantize(found) - original.read(name)[3:9]).max() < 0.2
    assert blocks.blocks("model.layers.1.mlp.down_proj.weight") is None
    assert blocks.blocks("model.embed_tokens.weight") is None


def test_windows_of_attention_and_biases(tmp_path: Path) -> None:
    """Layers of one model that get different masks, and biases beside the matrices."""
    write_checkpoint(tmp_path / "fetch/model", "qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert len(quantized(tmp_path)[1]["layers"]) == 8


def test_a_text_of_less_than_a_window(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fetch/model", "llama", vocab_size=small_tokenizers.byte_level().get_vocab_size())
    small_tokenizers.write(tmp_path / "tokenizer", small_tokenizers.byte_level(), {})
    (tmp_path / "calibration").write_text("")
    with pytest.raises(UserError, match=r"quantization\.calibration: .* less than a window of 64"):
        quantized(tmp_path, text="file")
    (tmp_path / "calibration").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"quantization\.calibration: the file is no UTF-8"):
        quantized(tmp_path, text="file")
    with pytest.raises(UserError, match=r"quantization\.calibration: json:nothing fails"):
        quantized(tmp_path, text="json:nothing")


def test_a_text_without_a_tokenizer(tmp_path: Path, checkpoint: Path) -> None:
    with pytest.raises(UserError, match="needs a tokenizer"):
        quantized(tmp_path, text="file")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(tmp_path: Path, checkpoint: Path, value: float) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    weights["model.layers.0.self_attn.v_proj.weight"][3, 5] = value
    save_file(weights, checkpoint / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"quantization: layers\.0\.qkv: .*not finite"):
        quantized(tmp_path)


def test_the_default_text_is_not_the_one_that_models_are_verified_on() -> None:
    from pydoc_data.topics import topics

    text = calibration.python_documentation()
    assert text == calibration.python_documentation()
    assert len(text) > 200_000
    paragraphs = {part.strip() for part in text.split("\n\n") if len(part) > 80}
    verified = {part.strip() for topic in topics.values() for part in topic.split("\n\n")}
    assert not paragraphs & verified


QUANTIZED = '\n[quantization]\nscheme = "int4"\ngroup_size = 32\n'


@pytest.fixture
def workspace(tmp_path: Path) -> TestWorkspace:
    made = make_reciter_workspace(tmp_path)
    made.write("recipes/text.txt", "Hello, world! The capital of a country is a city. " * 40)
    made.write("recipes/reciter.toml", (made.root / "recipes/reciter.toml").read_text() + QUANTIZED)
    return made


def test_another_method_makes_other_weights_and_the_same_library(workspace: TestWorkspace) -> None:
    stages = ("--stages", "compile,weights")
    workspace.build("reciter", *stages)
    nearest = outputs(workspace)
    assert "quantize" not in nearest
    workspace.edit("recipes/reciter.toml", QUANTIZED, QUANTIZED + 'method = "gptq"\ncalibration = "recipes/text.txt"\n')
    statuses = workspace.build("reciter", *stages)
    assert statuses["quantize"] == statuses["weights"] == "built"
    assert statuses["import"] == statuses["optimize"] == statuses["compile"] == "hit"
    compensated = outputs(workspace)
    assert compensated["compile"] == nearest["compile"]
    assert compensated["weights"] != nearest["weights"]
    assert set(workspace.build("reciter", *stages).values()) == {"hit"}
    workspace.edit("recipes/text.txt", "capital", "largest")
    statuses = workspace.build("reciter", *stages)
    assert statuses["quantize"] == "built"
    assert statuses["compile"] == "hit"
    assert "layers.1.gate_up" in (workspace.root / "artifacts/reciter/report.html").read_text()


def outputs(workspace: TestWorkspace) -> dict[str, Any]:
    """Stage -> digests of its files."""
    entries = [json.loads(path.read_bytes()) for path in workspace.cache.glob("actions/*/*.json")]
    keys = {stage["key"]: stage["name"] for stage in workspace.report("reciter")["stages"]}
    return {keys[entry["key"]]: entry["outputs"] for entry in entries if entry["key"] in keys}
