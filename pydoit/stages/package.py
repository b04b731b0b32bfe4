"""package: the artifact folder, self-contained and the same bytes on every machine."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.digest import hash_file
from pydoit.frozen import Frozen
from pydoit.keys import pretty
from pydoit.target import ResolvedTarget

TOOLS = ("apache-tvm", "apache-tvm-ffi")
READS = {
    "tokenizer": ("*",),
    "optimize": ("spec.json",),
    "compile": ("lib*.so*",),
    "weights": ("model.safetensors",),
}
OPTIONAL = ("tokenizer", "weights")
"""What an artifact may lack where its source cannot be reached; the manifest then says that it is deferred."""


class Spec(Frozen):
    """What the manifest says beside the files."""

    recipe: str
    """Name of the recipe, with its variant."""
    target: ResolvedTarget
    """What the library was compiled for."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Copy lib.so, what lies beside it, weights/ and tokenizer/, and write manifest.json; no times, paths or hosts in it."""
    libraries = sorted(path.name for path in inputs["compile"].glob("lib*.so*"))
    for name in libraries:
        shutil.copyfile(inputs["compile"] / name, out / name)
    if "weights" in inputs:
        (out / "weights").mkdir()
        shutil.copyfile(inputs["weights"] / "model.safetensors", out / "weights" / "model.safetensors")
    _copy_files(inputs.get("tokenizer"), out / "tokenizer")
    described = json.loads((inputs["optimize"] / "spec.json").read_bytes())
    manifest = {
        "schema": 1,
        "recipe": spec.recipe,
        "target": spec.target.model_dump(),
        "library": _file(out, "lib.so"),
        "weights": [_file(out, "weights/model.safetensors")] if "weights" in inputs else [],
        "deferred": [stage for stage in OPTIONAL if stage not in inputs],
        "entry": described["entry"],
        "dims": described["dims"],
        "inputs": described["inputs"],
        "outputs": described["outputs"],
        "params": described["weights"],
        "toolchain": {name: importlib.metadata.version(name) for name in TOOLS},
    }
    beside = [_file(out, name) for name in libraries if name != "lib.so"]
    if beside:
        manifest["libraries"] = beside
    if "language" in described:
        manifest["language"] = described["language"]
    (out / "manifest.json").write_bytes(pretty(manifest))
    return {"bytes": sum(path.stat().st_size for path in out.rglob("*") if path.is_file())}


def _copy_files(source: Path | None, folder: Path) -> None:
    """The files of `source` into a new `folder`; nothing where there are none."""
    for path in sorted(source.iterdir()) if source is not None else ():
        folder.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / path.name)


def _file(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    return {"path": name, "sha256": hash_file(path), "bytes": path.stat().st_size}
