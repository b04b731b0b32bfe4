"""Every type of GGUF tensors against the gguf package's own dequantize, exactly; and files that are wrong in one thing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES

from pydoit.errors import UserError
from pydoit.kernels.cpu.weight_format import dequantize
from pydoit.models.checkpoint import GgufCheckpoint, find_gguf, load_config
from pydoit.models.config import decoder_config
from pydoit.models.gguf_file import GgufFile
from pydoit.models.gguf_tokenizer import write_tokenizer
from pydoit.models.parameters import checkpoint_shapes, gguf_name
from pydoit.runtime.text.tokenizer import Tokenizer

CONFIG = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
          "num_key_value_heads": 2, "vocab_size": 40}  # fmt: skip
SCALES: dict[str, tuple[int, ...]] = {
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2),
}  # fmt: skip
"""Where in a block its float16 scales lie (ggml-common.h); all other bits may be any."""
TYPES = (*SCALES, "F16", "BF16", "F32")
Raw = np.ndarray[Any, Any]


def random_rows(kind: str, shape: tuple[int, ...], random: np.random.Generator) -> Raw:
    """Raw rows of any bits, but with finite scales and, of the floating types, finite values."""
    if kind not in SCALES:
        values = random.normal(size=shape).astype(np.float32)
        return np.asarray(gguf.quants.quantize(values, GGMLQuantizationType[kind]))
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = random.integers(0, 256, (shape[0], shape[1] // elements, size), np.uint8)
    for at in SCALES[kind]:
        scales = random.normal(size=(*blocks.shape[:2], 1)).astype(np.float16)
        blocks[..., at : at + 2] = scales.view(np.uint8)
    return blocks.reshape(shape[0], -1)


def write(
    path: Path,
    kinds: Callable[[str], str],
    change: Callable[[dict[str, Any]], object] = lambda tensors: None,
    tokens: int = 40,
    **metadata: Any,
) -> dict[str, tuple[str, Raw]]:
    """A llama with every matrix in the type that `kinds` names; `change` may spoil the tensors before they are written."""
    random = np.random.default_rng(0)
    tensors: dict[str, tuple[str, Raw]] = {}
    for name, shape in checkpoint_shapes(decoder_config(CONFIG)).items():
        kind = kinds(gguf_name(name)) if len(shape) == 2 else "F32"
        tensors[gguf_name(name)] = (kind, random_rows(kind, shape, random))
    change(tensors)
    writer = gguf.GGUFWriter(path, metadata.get("architecture", "llama"))
    for name, value in {"context_length": 64, "embedding_length": 256, "block_count": 2, "feed_forward_length": 512,
                        "attention.head_count": 8, "attention.head_count_kv": 2, **metadata.get("numbers", {})}.items():  # fmt: skip
        writer.add_uint32(f"llama.{name}", value)
    writer.add_layer_norm_rms_eps(1e-5)
    for name, value in metadata.get("floats", {}).items():
        writer.add_float32(name, value)
    for name, value in metadata.get("texts", {}).items():
        writer.add_string(name, value)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", "\u2581", *(f"t{index}" for index in range(tokens - 4))])
    writer.add_token_scores([-float(index) for index in range(tokens)])
    writer.add_token_types(metadata.get("types", [2, 3, 3] + [1] * (tokens - 3)))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(metadata.get("eos", 2))
    for name, (kind, rows) in tensors.items():
        writer.add_tensor(name, rows, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def in_order(name: str, values: Raw) -> Raw:
    """Rows as transformers has them: pair i of a head, in the file side by side, lies half a head apart."""
    heads = {"attn_q": 8, "attn_k": 2}.get(name.split(".")[2] if name.startswith("blk.") else "", 0)
    if not heads:
        return values
    found = np.empty_like(values)
    size = len(values) // heads
    for head in range(heads):
        for pair in range(size // 2):
            for side in range(2):
                found[head * size + side * size // 2 + pair] = values[head * size + 2 * pair + side]
    return found


def check(path: Path, tensors: dict[str, tuple[str, Raw]]) -> None:
    config = load_config("gguf", path.parent, None)
    checkpoint = GgufCheckpoint(path, config)
    for name, shape in checkpoint_shapes(config).items():
        own = gguf_name(name)
        kind, rows = tensors[own]
        expected = in_order(own, gguf.quants.dequantize(rows, GGMLQuantizationType[kind]).reshape(shape))
        found = checkpoint.read(name)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)
        if len(shape) == 2 and "attn_q" not in own and "attn_k" not in own:
            np.testing.assert_array_equal(checkpoint.read(name, slice(8, 24)), expected[8:24])
        blocks = checkpoint.blocks(name)
        assert (blocks is not None) == (kind in ("Q8_0", "Q4_0", "Q4_1"))
        if blocks is not None:
            np.testing.assert_array_equal(dequantize(blocks), expected)


@pytest.mark.parametrize("kind", TYPES)
def test_each_type_is_what_gguf_makes_of_it(kind: str, tmp_path: Path) -> None:
    check(tmp_path / "m.gguf", write(tmp_path / "m.gguf", lambda name: kind))


def test_types_mixed_as_in_real_files(tmp_path: Path) -> None:
    mixed = {
        "attn_v": "Q6_K",
        "ffn_down": "Q5_K",
        "attn_q": "Q4_1",
        "attn_k": "Q5_0",
        "ffn_gate": "BF16",
        "attn_output": "Q8_0",
    }
    tensors = write(tmp_path / "m.gguf", lambda name: mixed.get(name.split(".")[-2], "Q4_K"))
    assert {kind for kind, _ in tensors.values()} > set(mixed.values())
    check(tmp_path / "m.gguf", tensors)


def test_a_type_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write(
        path, lambda name: "F16", lambda tensors: tensors.update({"output.weight": ("IQ4_NL", np.zeros((40, 144), np.uint8))})
    )
    with pytest.raises(UserError, match=r"tensors of type IQ4_NL cannot be read; known: F32, F16"):
        GgufCheckpoint(path, load_config("gguf", tmp_path, None)).read("lm_head.weight")


def rename(old: str, new: str) -> Callable[[dict[str, Any]], object]:
    return lambda tensors: tensors.update({new: tensors.pop(old)})


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a tensor missing": ({"change": lambda tensors: tensors.pop("blk.1.ffn_up.weight")}, r"lacks blk\.1\.ffn_up\.weight;"),
    "a tensor unknown": (
        {"change": lambda tensors: tensors.update({"blk.0.ffn_gate_inp.weight": ("F32", np.zeros((4, 256), np.float32))})},
        r"has unknown blk\.0\.ffn_gate_inp\.weight;",
    ),
    "a tensor renamed": (
        {"change": rename("blk.0.attn_v.weight", "blk.0.attn_w.weight")},
        r"lacks blk\.0\.attn_v\.weight; has unknown blk\.0\.attn_w\.weight;",
    ),
    "another shape": (
        {"change": lambda tensors: tensors.update({"output_norm.weight": ("F32", np.ones(128, np.float32))})},
        r"has another shape for output_norm\.weight \(\[128\], not \[256\]\)",
    ),
    "more layers": ({"numbers": {"block_count": 40}}, r"lacks blk\.2\.attn_norm\.weight, .* and 332 more;"),
    "far too many layers": ({"numbers": {"block_count": 2**32 - 1}}, "num_hidden_layers is 4294967295; it must be"),
    "experts": ({"numbers": {"expert_count": 8}}, "mixture of experts, which is not supported"),
    "heads that do not divide": ({"numbers": {"attention.head_count_kv": 3}}, "8 is no multiple of num_key_value_heads 3"),
    "partly rotated": ({"numbers": {"rope.dimension_count": 16}}, "heads of 32 with 16 rotated dimensions"),
    "an unknown scaling": ({"texts": {"llama.rope.scaling.type": "longrope"}, "floats": {"llama.rope.scaling.factor": 2.0}},
                           "rope scaling 'longrope' is not supported"),
    "a scaling without factor": ({"texts": {"llama.rope.scaling.type": "linear"}}, r"'llama\.rope\.scaling\.factor' is missing"),
    "an unknown key of scaling": ({"floats": {"llama.rope.scaling.attn_factor": 2.0}},
                                  r"metadata llama\.rope\.scaling\.attn_factor are not supported; known: type, factor"),
    "one part of several": ({"texts": {"split.count": "2"}}, "metadata 'split.count' is '2', not int"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_wrong_in_one_thing(case: str, tmp_path: Path) -> None:
    values, fault = WRONG[case]
    write(tmp_path / "m.gguf", lambda name: "Q8_0", **values)
    with pytest.raises(UserError, match=fault) as raised:
        GgufCheckpoint(tmp_path / "m.gguf", load_config("gguf", tmp_path, None))
    assert "\n" not in str(raised.value)


def test_the_old_key_of_linear_scaling(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", lambda name: "F16", floats={"llama.rope.scale_linear": 4.0})
    assert load_config("gguf", tmp_path, None).rope.factor == 4


TOKENIZERS: dict[str, tuple[dict[str, Any], str]] = {
    "more tokens than rows": ({"tokens": 43}, "43 tokens have an embedding of 40 rows; convert the model again"),
    "an end beyond": ({"eos": 40}, r"eos_token_id is 40, of 40 tokens"),
    "too few types": ({"types": [1, 1]}, "40 tokens have 2 types"),
    "types as text": ({"types": ["a"] * 40}, "'tokenizer.ggml.token_type' is .*, not ndarray"),
}


@pytest.mark.parametrize("case", TOKENIZERS)
def test_tokenizers_that_do_not_match(case: str, tmp_path: Path) -> None:
    values, fault = TOKENIZERS[case]
    write(tmp_path / "m.gguf", lambda name: "F16", **values)
    with pytest.raises(UserError, match=fault) as raised:
        write_tokenizer(tmp_path / "m.gguf", tmp_path)
    assert "\n" not in str(raised.value)


def test_fewer_tokens_than_rows_are_padding(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", lambda name: "F16", tokens=33)
    write_tokenizer(tmp_path / "m.gguf", tmp_path)
    assert Tokenizer.load(tmp_path, model_vocabulary=40).vocabulary == 33


@pytest.mark.parametrize(
    ("magic", "fault"),
    [
        (b"GGML", "it does not begin with GGUF"),
        (b"GGUF\x01", "its version is 1; known: 2, 3"),
        (b"GGUF\0\0\0\x03", "it is big endian"),
    ],
)
def test_other_files(magic: bytes, fault: str, tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", lambda name: "F16")
    content = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(magic + content[len(magic) :])
    with pytest.raises(UserError, match=fault):
        GgufFile(tmp_path / "m.gguf")


def test_a_file_cut_anywhere(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", lambda name: "Q6_K")
    content = (tmp_path / "m.gguf").read_bytes()
    for size in (*range(0, 3000, 97), *range(4000, len(content), len(content) // 40), len(content) - 40):
        (tmp_path / "m.gguf").write_bytes(content[:size])
        with pytest.raises(UserError, match=r"no whole GGUF file|cannot be read") as raised:
            GgufFile(tmp_path / "m.gguf")
        assert "\n" not in str(raised.value)


def test_bits_that_flip_in_the_header(tmp_path: Path) -> None:
    """Whatever a byte becomes, the file is read or refused by UserError."""
    write(tmp_path / "m.gguf", lambda name: "Q4_K")
    content, random = (tmp_path / "m.gguf").read_bytes(), np.random.default_rng(3)
    head = content.index(b"token_embd.weight") + 1500
    refused = 0
    for _ in range(150):
        spoiled = bytearray(content)
        spoiled[int(random.integers(head))] = int(random.integers(256))
        (tmp_path / "m.gguf").write_bytes(spoiled)
        try:
            GgufCheckpoint(tmp_path / "m.gguf", load_config("gguf", tmp_path, None))
            write_tokenizer(tmp_path / "m.gguf", tmp_path)
        except UserError:
            refused += 1
    assert refused > 30


def test_none_or_several_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the model's folder has none with the suffix"):
        find_gguf(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.gguf").write_bytes(b"")
    with pytest.raises(UserError, match=r"the model's folder has a\.gguf, b\.gguf with the suffix"):
        find_gguf(tmp_path)
