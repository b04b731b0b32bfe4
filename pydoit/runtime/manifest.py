"""manifest.json of an artifact folder: read, and held against the files that lie beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pydoit.cpus import CPU_LANES, cpu_flags, native_arch, runs_here
from pydoit.errors import UserError

_NEEDED = ("library", "weights", "target", "inputs", "outputs", "params", "entry")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest's values; raises UserError for a folder that is no whole artifact of a known schema."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder}: no readable manifest.json ({error}); give the folder of an artifact") from error
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema != 1:
        raise UserError(f"{folder}: manifest.json has schema {schema!r}; this version reads 1")
    lacking = [name for name in _NEEDED if name not in manifest]
    if lacking:
        raise UserError(f"{folder}: manifest.json lacks {', '.join(lacking)}; copy it again")
    kind, arch = manifest["target"].get("kind"), manifest["target"].get("arch")
    if kind == "cpu" and arch in CPU_LANES and not runs_here(arch):
        here = native_arch(cpu_flags())
        raise UserError(f"{folder}: the library is for {arch} CPUs and this is {here}; build it with target.arch = {here!r}")
    for item in described_files(manifest):
        file = folder / item["path"]
        if Path(item["path"]).is_absolute() or ".." in Path(item["path"]).parts:
            raise UserError(f"{folder}: manifest.json names {item['path']!r}, outside the artifact; refuse it")
        if not file.is_file() or file.stat().st_size != item["bytes"]:
            raise UserError(f"{folder}: {item['path']} is missing or has another size than built; copy it again")
    return dict(manifest)


def described_files(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """{path, sha256, bytes} of every file that a manifest names: the library, what it needs beside it, the weights."""
    return [manifest["library"], *manifest.get("libraries", ()), *manifest["weights"]]


def check_weights(tensors: Mapping[str, NDArray[Any]], params: Sequence[Mapping[str, Any]]) -> None:
    """Raises UserError where a weight is missing or is of another shape or dtype than the library was compiled for."""
    missing = [item["name"] for item in params if item["name"] not in tensors]
    if missing:
        raise UserError(f"the weights lack {missing[0]!r} and {len(missing) - 1} more; build or copy them again")
    for item in params:
        found = tensors[item["name"]]
        if list(found.shape) != list(item["shape"]) or str(found.dtype) != item["dtype"]:
            raise UserError(
                f"the weight {item['name']!r} is {found.dtype} {list(found.shape)}, the library takes {item['dtype']} "
                f"{list(item['shape'])}; build or copy library and weights together"
            )
