"""import, language models: a config becomes Relax functions over a paged cache; weights are named, not read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.keys import pretty
from pydoit.models.spec import LanguageSpec

TOOLS = ("apache-tvm", "apache-tvm-ffi", "triton", "gguf", "numpy")
READS = {"fetch": ("model/config.json", "model/*.gguf")}


class Spec(LanguageSpec):
    """The language model."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write module.json and spec.json; inputs["config"] is the recipe's own config.json, if it names one.

    inputs["records"]: tuning records that choose the kernels of products on a GPU.
    """
    from tvm.ir import save_json

    from pydoit.models.checkpoint import load_config
    from pydoit.models.decoder import FUNCTIONS, build_module
    from pydoit.models.formats import check_exclude
    from pydoit.models.targets import make_operators
    from pydoit.models.weights import described_weights
    from pydoit.records import read_records

    folder = inputs["fetch"] / "model" if "fetch" in inputs else Path()
    config = load_config(spec.source, folder, inputs.get("config"))
    check_exclude(config, spec.kept)
    records = read_records(inputs["records"]) if "records" in inputs else None
    operators = make_operators(config, spec, records.decisions(spec.target.arch) if records is not None else None)
    shape = spec.cache_shape
    module, arguments = build_module(config, operators, shape)
    weights = described_weights(config, operators)
    named = {weight["name"] for weight in weights}
    described = {
        "schema": 1,
        "entry": "batch_decode",
        "dims": {"sequences": {"min": 1, "max": shape.sequences}},
        "inputs": [
            {"name": "tokens", "shape": ["sequences"], "dtype": "int32"},
            {"name": "positions", "shape": ["sequences"], "dtype": "int32"},
            {"name": "places", "shape": ["sequences"], "dtype": "int32"},
            {"name": "tables", "shape": ["sequences", shape.pages], "dtype": "int32"},
        ],
        "outputs": [{"name": "logits", "shape": ["sequences", config.vocabulary], "dtype": "float32"}],
        "params": weights,
        "weights": weights,
        "language": {
            "config": config.model_dump(mode="json"),
            "cache": {"dtype": shape.dtype, "tokens": shape.tokens, "sequences": shape.sequences,
                      "page_size": shape.page_size, "prefill_chunk": shape.prefill_chunk},
            "functions": list(FUNCTIONS),
            "arguments": [item["name"] for item in arguments],
            "caches": [item for item in arguments if item["name"] not in named],
        },
    }  # fmt: skip
    (out / "module.json").write_text(save_json(module), encoding="utf-8")
    (out / "spec.json").write_bytes(pretty(described))
    return {"architecture": config.architecture, "parameters": config.parameters, "functions": list(FUNCTIONS)}
