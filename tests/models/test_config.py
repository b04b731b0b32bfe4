"""Configs of language models: what transformers takes for missing keys, and every fault or wish refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from pydoit.errors import UserError
from pydoit.models.config import ARCHITECTURES, decoder_config, read_values

PLAIN = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 97, "num_hidden_layers": 4, "num_attention_heads": 4,
         "vocab_size": 131}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}


def without(values: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize(
    "more",
    [
        {}, {"num_key_value_heads": None}, {"num_key_value_heads": 2, "head_dim": 10}, {"tie_word_embeddings": True},
        {"use_sliding_window": True}, {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2},
        {"use_sliding_window": True, "sliding_window": None}, {"sliding_window": None}, {"rms_norm_eps": 1e-5, "vocab_size": 1},
    ],
    ids=str,
)  # fmt: skip
def test_missing_keys_are_what_transformers_takes(kind: str, more: dict[str, Any]) -> None:
    wide = {"hidden_size": 4096, "num_attention_heads": 32}  # heads that the defaults of all kinds divide
    values = {**PLAIN, **wide, **more, "model_type": kind}
    if kind == "mistral" and values.get("num_key_value_heads", 8) is None:
        values["num_key_value_heads"] = 8  # transformers refuses null
    if kind == "llama" and values.get("sliding_window") is not None:
        values.pop("sliding_window")
    found = decoder_config(values)
    expected: Any = transformers.AutoConfig.for_model(**values)
    heads = expected.hidden_size // expected.num_attention_heads
    assert found.kv_heads == expected.num_key_value_heads
    assert found.head_dim == (getattr(expected, "head_dim", None) or heads)
    assert found.context == expected.max_position_embeddings
    assert found.norm_epsilon == expected.rms_norm_eps
    assert found.tied == expected.tie_word_embeddings
    assert found.rope.theta == expected.rope_parameters["rope_theta"]
    window = getattr(expected, "sliding_window", None) if kind != "llama" else None
    kinds = getattr(expected, "layer_types", None) or ["sliding_attention" if window else "full_attention"] * 4
    assert found.windows == tuple(window if item == "sliding_attention" else None for item in kinds)


@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "linear", "factor": 2.5}, LLAMA3, {**LLAMA3, "factor": 32}, YARN, {**YARN, "attention_factor": 1.3},
        {**YARN, "beta_fast": 20.0, "beta_slow": 2.0}, {**YARN, "factor": 1.0}, without(YARN, "original_max_position_embeddings"),
        {"rope_type": "default"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("form", ["rope_scaling", "rope_parameters"])
def test_rotary_frequencies_are_those_of_transformers(scaling: dict[str, Any], form: str) -> None:
    values = {**PLAIN, "head_dim": 16, "max_position_embeddings": 512, "rope_theta": 500000.0, form: dict(scaling)}
    found = decoder_config(values).rope
    expected: Any = transformers.AutoConfig.for_model(**{**values, form: dict(scaling)})
    if found.type == "default":
        frequencies, magnitude = 1.0 / 500000.0 ** (np.arange(0, 16, 2) / 16), 1.0
    else:
        frequencies, magnitude = ROPE_INIT_FUNCTIONS[found.type](expected, "cpu")
    # A few float32 roundings of each.
    np.testing.assert_allclose(found.frequencies(16), np.asarray(frequencies), rtol=4e-6)
    assert found.magnitude == pytest.approx(magnitude, rel=1e-6)


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "mixtral"}, 'model_type "mixtral" is not supported; did you mean'),
    ({"model_type": None}, 'model_type "None" is not supported; known: llama'),
    ({"model_type": ["llama"]}, "is not supported"),
    ({"hidden_size": None}, "hidden_size is missing; add it"),
    ({"hidden_size": "64"}, "hidden_size is '64'; it must be a whole number"),
    ({"hidden_size": 64.0}, "hidden_size is 64.0; it must be a whole number"),
    ({"hidden_size": True}, "hidden_size is True; it must be"),
    ({"hidden_size": 2**31}, "hidden_size is 2147483648; it must be a whole number from 1 to 2147483647"),
    ({"hidden_size": 66}, "hidden_size 66 is no multiple of num_attention_heads 4"),
    ({"hidden_size": 66, "head_dim": 16}, "hidden_size 66 is no multiple of num_attention_heads 4"),
    ({"hidden_size": 2}, "hidden_size 2 is no multiple"),
    ({"hidden_size": 12}, "head_dim 3 is odd"),
    ({"head_dim": -16}, "head_dim is -16"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; it must be a whole number from 1 to 1024"),
    ({"num_key_value_heads": 3}, "num_attention_heads 4 is no multiple of num_key_value_heads 3"),
    ({"num_key_value_heads": 8}, "num_attention_heads 4 is no multiple of num_key_value_heads 8"),
    ({"vocab_size": 0}, "vocab_size is 0"),
    ({"rms_norm_eps": "1e-5"}, "rms_norm_eps is '1e-5'; it must be a positive number"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
    ({"rms_norm_eps": -1e-5}, "rms_norm_eps is -1e-05"),
    ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; it must be true or false"),
    ({"hidden_act": "gelu"}, 'hidden_act "gelu" is not supported'),
    ({"hidden_act": None}, 'hidden_act "None" is not supported'),
    ({"mlp_bias": True}, "mlp_bias is not supported"),
    (
        {"model_type": "mistral", "num_key_value_heads": 4, "attention_bias": True},
        'attention_bias does not go with model_type "mistral"',
    ),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config: checkpoints that are quantized already"),
    ({"auto_map": {"AutoModelForCausalLM": "own.Model"}}, 'auto_map names code of its own, "own.Model"'),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is not supported"),
    ({"rope_theta": 0}, "rope_theta is 0; it must be a positive number"),
    ({"rope_theta": 1.0}, "rope_theta is 1.0; it must be above 1"),
    ({"rope_theta": "10000"}, "rope_theta is '10000'"),
    ({"rope_scaling": [1]}, "rope_scaling is .*; it must be a table"),
    (
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        'rope_scaling: rope_type "dynamic" is not supported; known: default',
    ),
    ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, 'rope_type "longrope" is not supported'),
    ({"rope_scaling": {"type": "yarm", "factor": 2.0}}, "did you mean 'yarn'"),
    ({"rope_scaling": {"rope_type": ["yarn"]}}, "is not supported"),
    ({"rope_scaling": {"type": "linear"}}, 'rope_type "linear" needs factor, which is missing'),
    ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor is '2'"),
    ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor is 0"),
    ({"rope_scaling": without(LLAMA3, "low_freq_factor")}, 'rope_type "llama3" needs low_freq_factor'),
    ({"rope_scaling": {**LLAMA3, "low_freq_factor": 4.0}}, "low_freq_factor must be less than high_freq_factor"),
    ({"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64.5}}, "original_max_position_embeddings is 64.5"),
    ({"rope_scaling": {**YARN, "mscale": 1.0}}, 'mscale is not supported for rope_type "yarn"'),
    ({"rope_scaling": {**YARN, "truncate": False}}, "truncate is not supported"),
    ({"rope_scaling": {**YARN, "beta_slow": 40}}, "beta_slow must be less than beta_fast"),
    ({"rope_scaling": {"mrope_section": [8, 8, 8], "type": "default"}}, "mrope_section is not supported"),
    ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "rope_parameters: full_attention is not supported"),
    ({"rope_scaling": YARN, "rope_parameters": LLAMA3}, "rope_scaling and rope_parameters both say"),
    ({"sliding_window": 16}, 'sliding_window does not go with model_type "llama"'),
    ({"model_type": "mistral", "num_key_value_heads": 4, "sliding_window": 0}, "sliding_window is 0"),
    (
        {"model_type": "mistral", "num_key_value_heads": 4, "layer_types": ["full_attention"] * 4},
        "layer_types does not agree with",
    ),
    ({"layer_types": ["sliding_attention"] * 4}, "layer_types does not agree with sliding_window None"),
    ({"layer_types": ["full_attention"] * 3}, "layer_types must list 4 kinds"),
    ({"layer_types": "full_attention"}, "layer_types must list 4 kinds"),
    (
        {"layer_types": ["chunked_attention"] * 4},
        "'chunked_attention' is not supported; known: full_attention, sliding_attention",
    ),
    (
        {"model_type": "qwen2", "num_key_value_heads": 4, "use_sliding_window": 1},
        "use_sliding_window is 1; it must be true or false",
    ),
    (
        {"model_type": "qwen2", "num_key_value_heads": 4, "use_sliding_window": True, "max_window_layers": "x"},
        "max_window_layers is 'x'",
    ),
]


@pytest.mark.parametrize(("change", "fault"), FAULTS, ids=str)
def test_faults_are_named(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(UserError, match=fault) as raised:
        decoder_config({**PLAIN, **change})
    assert "\n" not in str(raised.value)


def test_every_key_may_be_of_any_type() -> None:
    """Whatever stands at a key, it is taken or refused by UserError."""
    keys = [*PLAIN, "num_key_value_heads", "head_dim", "rope_scaling", "rope_parameters", "sliding_window", "layer_types", "auto_map",
            "max_window_layers", "hidden_act", "original_max_position_embeddings", "max_position_embeddings"]  # fmt: skip
    odd: list[Any] = [None, True, -1, 0, 1, 3, 2**63, 1.5, float("inf"), "", "x", [], [[]], {}, {"type": {}}, {"factor": []}]
    for kind in ARCHITECTURES:
        for key in keys:
            for value in odd:
                values = {**PLAIN, "model_type": kind, "num_key_value_heads": 4, "use_sliding_window": True, key: value}
                try:
                    decoder_config(values)
                except UserError as error:
                    assert "; " in str(error)  # noqa: PT017 - both outcomes are right


@pytest.mark.parametrize(("content", "fault"), [("{", "cannot be read"), ("[]", "holds no table"), ("\xff", "cannot be read")])
def test_files_that_are_no_config(content: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=fault):
        read_values(tmp_path / "config.json")


def test_windows_of_single_layers() -> None:
    values = {**PLAIN, "model_type": "qwen3", "num_key_value_heads": 4, "use_sliding_window": True, "sliding_window": 9}
    kinds = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
    assert decoder_config({**values, "layer_types": kinds}).windows == (9, None, None, 9)
    assert decoder_config({**values, "layer_types": kinds, "max_window_layers": 1}).windows == (9, None, None, 9)
