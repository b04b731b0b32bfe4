"""What a pass does to a recipe's module, as a unified diff of its text."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydoit.errors import UserError
from pydoit.experiments.lab import Lab, usable
from pydoit.nearest import nearest
from pydoit.passes.info import Entry
from pydoit.passes.order import name_of

CONTEXT = 3


def pass_difference(lab: Lab, name: str) -> str:
    """The diffs of the pass's places in the order; `name` is a pass, or a place counted from 1.

    Raises UserError for a pass that the order does not have.
    """
    order = lab.order()
    places = find_places(order, name)
    parts = []
    folder = lab.workspace.state / "experiments" / lab.recipe / "passes"
    measured = dump(lab, order, places, folder)
    for place in places:
        label = f"{place + 1}/{len(order)} {name_of(order[place])}"
        if not measured["log"][place]["changed"]:
            parts.append(f"# {label} changes nothing\n")
            continue
        before, after = ((folder / f"{place}.{side}.py").read_text(encoding="utf-8") for side in ("before", "after"))
        lines = difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), f"before {label}", f"after {label}", n=CONTEXT
        )
        parts.append("".join(lines))
    return "\n".join(parts)


def find_places(order: Sequence[Entry], name: str) -> list[int]:
    """Places of a pass in an order."""
    if name.isdecimal():
        if not 1 <= int(name) <= len(order):
            raise UserError(f"the order has no pass {name}; it has {len(order)}")
        return [int(name) - 1]
    places = [place for place, use in enumerate(order) if name_of(use) == name]
    if not places:
        raise UserError(f"the order has no pass {name!r}; {nearest(name, list(dict.fromkeys(map(name_of, order))))}")
    return places


def dump(lab: Lab, order: Sequence[Entry], places: Sequence[int], folder: Path) -> dict[str, Any]:
    """Write the modules before and after those places into `folder`; the log of the passes."""
    built = usable(lab.build(lab.recipe, order, stages=("fetch", "import")))
    node = built.session.node(lab.recipe, "optimize")
    spec = {"passes": list(order), "places": list(places), "target": node.spec["target"], "folder": str(folder)}
    files = {name: built.results["import"].files[name].path for name in ("module.json", "spec.json")}
    return lab.work("dump_passes", spec, {"import": files})
