"""kernels: the functions of optimized modules by what they compute; no part of a build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.frozen import Frozen

TOOLS = ("apache-tvm", "apache-tvm-ffi")
READS: Mapping[str, tuple[str, ...]] = {}


class Spec(Frozen):
    """Nothing is chosen."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Return {input: {function: digest}} for the folders in `inputs`, each with a module.json."""
    return {name: _functions(folder / "module.json") for name, folder in inputs.items()}


def _functions(path: Path) -> dict[str, str]:
    """Digests that hold for the same computation under another name."""
    from pydoit.tvm_compat import load_json, structural_hash, tirx

    module = load_json(path.read_text(encoding="utf-8"))
    return {
        name.name_hint: f"{structural_hash(function.without_attr('global_symbol')) & (2**64 - 1):016x}"
        for name, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }
