"""SmolLM2's GGUF file: its blocks, config and tokenizer; files cut short; text from the compiled model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pydoit.errors import UserError
from pydoit.kernels.cpu.weight_format import dequantize
from pydoit.models.checkpoint import GgufCheckpoint, load_config
from pydoit.models.config import decoder_config
from pydoit.models.gguf_file import GgufFile
from pydoit.models.gguf_tokenizer import write_tokenizer

gguf = pytest.importorskip("gguf")
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
CONFIG = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 40, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "tie_word_embeddings": False}  # fmt: skip


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter does it."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(path: Path, kind: str) -> dict[str, np.ndarray]:
    """A llama with its matrices in one type; the float32 values before that, by transformers' names."""
    from pydoit.models.parameters import checkpoint_shapes, gguf_name

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(3)), "\u2581", "a", "b", "ab", "\u2581ab"]
    tokens += [f"t{index}" for index in range(40 - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 6 + [-float(index) for index in range(34)])
    writer.add_token_types([2, 3, 3, 6, 6, 6] + [1] * 34)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    generator = np.random.default_rng(0)
    values = {}
    for name, shape in checkpoint_shapes(decoder_config(CONFIG)).items():
        value = values[name] = generator.normal(size=shape).astype(np.float32)
        heads = 4 if "q_proj" in name else 2 if "k_proj" in name else 0
        stored = permuted(value, heads) if heads else value
        chosen = gguf.GGMLQuantizationType[kind if len(shape) == 2 else "F32"]
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(stored, chosen), raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


@pytest.mark.parametrize("kind", TYPES)
def test_types(kind: str, tmp_path: Path) -> None:
    values = write_gguf(tmp_path / "m.gguf", kind)
    config = load_config("gguf", tmp_path, None)
    assert (config.heads, config.kv_heads, config.layers, config.tied) == (4, 2, 1, False)
    checkpoint = GgufCheckpoint(tmp_path / "m.gguf", config)
    steps = {"F32": 0, "F16": 1e-3, "BF16": 8e-3, "Q8_0": 0.02, "Q5_0": 0.2, "Q5_1": 0.2, "Q4_0": 0.4, "Q4_1": 0.4}[kind]
    for name, value in values.items():
        found = checkpoint.read(name)
        np.testing.assert_allclose(found, value, rtol=steps, atol=steps)
        blocks = checkpoint.blocks(name) if value.ndim == 2 else None
        assert (blocks is not None) == (value.ndim == 2 and kind in ("Q8_0", "Q4_0", "Q4_1"))
        if blocks is not None:
            np.testing.assert_allclose(dequantize(blocks), found, rtol=1e-6, atol=1e-6)


def test_a_file_cut_short_or_of_another_model(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "Q8_0")
    content = (tmp_path / "m.gguf").read_bytes()
    for size in (0, 3, 20, 200, 1000, len(content) // 2, len(content) - 1):
        (tmp_path / "m.gguf").write_bytes(content[:size])
        with pytest.raises(UserError):
            GgufFile(tmp_path / "m.gguf")
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(UserError, match=r"lacks blk.1.attn_norm.weight"):
        GgufCheckpoint(tmp_path / "m.gguf", decoder_config({**CONFIG, "num_hidden_layers": 2}))


def test_a_sentencepiece_tokenizer(tmp_path: Path) -> None:
    from pydoit.runtime.text.tokenizer import Tokenizer

    write_gguf(tmp_path / "m.gguf", "F16")
    (tmp_path / "out").mkdir()
    write_tokenizer(tmp_path / "m.gguf", tmp_path / "out")
    first = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    write_tokenizer(tmp_path / "m.gguf", tmp_path / "out")
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    tokenizer = Tokenizer.load(tmp_path / "out", model_vocabulary=40)
    assert tokenizer.encode("ab") == [1, 10]
    assert tokenizer.decode([1, 10, 9]) == "abab"
    assert tokenizer.eos == {2}
    with pytest.raises(UserError, match="knows 30 tokens"):
        Tokenizer.load(tmp_path / "out", model_vocabulary=30)


def test_an_unknown_kind_of_tokenizer(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tokenizer_model("bert")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UserError, match="'bert' tokenizer is not supported"):
        write_tokenizer(tmp_path / "m.gguf", tmp_path)
