"""What can be said of one side of `doit diff` without measuring anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydoit.keys import parse_json
from pydoit.regression.sides import Side
from pydoit.reproduce.elf import function_sizes
from pydoit.runtime.manifest import described_files

METRICS = ("max_abs", "max_rel", "cosine", "greedy", "top1", "divergence", "perplexity")
"""Accuracy in the report that is compared."""

MEMORY = ("planned_bytes", "live_bytes")
"""Of the compile stage: what intermediates take, and the least that they could."""


@dataclass(frozen=True)
class Facts:
    """One artifact: where it comes from and what it is."""

    label: str
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """The resolved recipe; empty for a folder."""
    toolchain: Mapping[str, str] = field(default_factory=dict)
    interface: Mapping[str, Any] = field(default_factory=dict)
    """Inputs, outputs, dimensions, target."""
    functions: Mapping[str, int] = field(default_factory=dict)
    """Functions of the library and their bytes."""
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Task -> decisions of the recipe's tuning records."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each file, and of the memory plan."""
    accuracy: Mapping[str, float] = field(default_factory=dict)
    latency: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds, measured when each was profiled."""


def facts_of(side: Side) -> Facts:
    """Read manifest, library and, where they are there, the report and the recipe with its records."""
    manifest = parse_json((side.folder / "manifest.json").read_bytes())
    report = _report(side.folder)
    files = described_files(manifest)
    compiled = (report.get("measurements") or {}).get("compile") or {}
    recipe: Mapping[str, Any] = {}
    records: dict[str, Any] = {}
    if side.session is not None:
        loaded = side.session.loaded[side.recipe]
        recipe = loaded.values
        records = _records(side.session.workspace.root / loaded.records) if loaded.records else {}
    return Facts(
        side.label,
        recipe,
        manifest["toolchain"],
        {key: manifest[key] for key in ("target", "entry", "dims", "inputs", "outputs")},
        function_sizes((side.folder / manifest["library"]["path"]).read_bytes()),
        records,
        {item["path"]: item["bytes"] for item in files}
        | {name: compiled[name] for name in MEMORY if _is_number(compiled.get(name))},
        _numbers(report.get("verify") or {}, METRICS),
        _numbers((report.get("profile") or {}).get("latency_ms") or {}, ("median", "p95")),
    )


def _report(folder: Path) -> dict[str, Any]:
    try:
        value = parse_json((folder / "report.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _records(path: Path) -> dict[str, Any]:
    try:
        document = parse_json(path.read_bytes())
        return {f"{item['task']} ({item['key'][:8]})": item["decisions"] for item in document["records"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _numbers(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    return {name: values[name] for name in names if _is_number(values.get(name))}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
