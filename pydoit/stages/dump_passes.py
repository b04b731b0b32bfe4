"""dump_passes: the IR before and after passes of an order, as text and as modules; no part of a build."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.errors import StageError
from pydoit.frozen import Frozen
from pydoit.target import ResolvedTarget, make_tvm_target

TOOLS = ("apache-tvm", "apache-tvm-ffi")
READS = {"import": ("module.json", "spec.json")}


class Spec(Frozen):
    """Which passes of which order."""

    passes: tuple[str | dict[str, Any], ...]
    """The order."""
    places: tuple[int, ...]
    """Places in it."""
    target: ResolvedTarget
    """What the passes optimize for."""
    folder: str
    """Where the files go: PLACE.before.py, PLACE.before.json, PLACE.after.py, PLACE.after.json."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write the files; return the log of the passes and the functions that each changed."""
    from pydoit import lifting
    from pydoit.passes.partial import changed_functions
    from pydoit.passes.running import run_passes
    from pydoit.tvm_compat import load_json, save_json

    described = json.loads((inputs["import"] / "spec.json").read_bytes())
    module = load_json((inputs["import"] / "module.json").read_text(encoding="utf-8"))
    if "main" in {name.name_hint for name in module.get_global_vars()}:
        module = lifting.mark_inputs(module, len(described["inputs"]))
    folder = Path(spec.folder)
    folder.mkdir(parents=True, exist_ok=True)
    changed: dict[int, list[str]] = {}

    def watch(place: int, _: Any, before: Any, after: Any) -> None:
        if place in spec.places:
            changed[place] = changed_functions(before, after)
            for name, version in (("before", before), ("after", after)):
                (folder / f"{place}.{name}.py").write_text(version.script(show_meta=False), encoding="utf-8")
                (folder / f"{place}.{name}.json").write_text(save_json(version), encoding="utf-8")

    last = max(spec.places, default=-1) + 1
    if last > len(spec.passes):
        raise StageError(f"the order has no pass {last}")
    with make_tvm_target(spec.target):
        _, log, seconds = run_passes(spec.passes[:last], module, watch=watch)
    return {"log": log, "seconds": seconds, "changed": changed}
