"""The report of a recipe as one JSON document (report.json; the contract of `doit report --format json`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.report.measured import judged
from pydoit.stages import ORDER
from pydoit.workspace import Workspace

SCHEMA = 1
MEASURED_AS = {"quantize": "quantization"}
"""Where a stage's measurements stand under another name: that of the recipe's table, and of the report's section."""


def make_report(workspace: Workspace, recipe: str, target: Mapping[str, Any], stages: Mapping[str, Any]) -> dict[str, Any]:
    """Put the recorded stages of the last build into the report's form; fields may be added, never renamed."""
    package = stages.get("package", {})
    profile, diagnosis = judged(workspace.store, target, _measured(stages.get("profile", {})), stages)
    return {
        "schema": SCHEMA,
        "recipe": recipe,
        "key": package.get("key"),
        "target": dict(target),
        "stages": [
            {"name": name, **{field: stages[name].get(field) for field in ("status", "key", "seconds", "reason")}}
            for name in ORDER
            if name in stages
        ],
        "library": _library(workspace, recipe, package),
        "verify": _measured(stages.get("verify", {})),
        "profile": profile,
        "diagnosis": diagnosis,
        "measurements": {
            MEASURED_AS.get(name, name): stages[name]["measurements"]
            for name in ORDER
            if name not in ("verify", "profile") and stages.get(name, {}).get("measurements")
        },
    }


def _measured(stage: Mapping[str, Any]) -> Any:
    """Measurements of a good or a failed run; null while deferred or not run."""
    measurements = stage.get("measurements")
    if not measurements:
        return None
    return {"passed": stage.get("status") in ("built", "hit", "restored"), **measurements}


def _library(workspace: Workspace, recipe: str, package: Mapping[str, Any]) -> Any:
    """The published library; null unless the last build published it."""
    path: Path = workspace.artifacts / recipe / "lib.so"
    sha256 = package.get("files", {}).get("lib.so")
    if package.get("status") not in ("built", "hit", "restored") or sha256 is None or not path.is_file():
        return None
    return {"path": path.relative_to(workspace.root).as_posix(), "sha256": sha256, "bytes": path.stat().st_size}
