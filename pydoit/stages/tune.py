"""tune: pick the tuning records that match this module and target; search for the missing ones only when asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydoit.errors import UserError
from pydoit.frozen import Frozen
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.worker import progress

TOOLS = ("apache-tvm", "apache-tvm-ffi")
READS = {"optimize": ("module.json",)}


class Spec(Frozen):
    """What happens with kernels that have no record."""

    on_miss: Literal["default", "error", "tune"] = "default"
    """The default schedule, an error, or a search during the build."""
    trials: int | None = None
    """Candidates measured for each kernel in a search."""
    budget_seconds: float | None = None
    """Longest time of a search."""
    target: ResolvedTarget
    """Records of another arch are ignored."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write records.json; inputs["records"] is the recipe's records file, if there is one.

    Raises UserError that names the kernels without a record when `on_miss` is "error".
    """
    from pydoit.kernels.tasks import extract_tasks
    from pydoit.kernels.triton.choice import products_of
    from pydoit.records import Records, TuningTarget, read_records
    from pydoit.tvm_compat import load_json

    module = load_json((inputs["optimize"] / "module.json").read_text(encoding="utf-8"))
    tasks = extract_tasks(module) if spec.target.kind == "cpu" else products_of(module)
    given = read_records(inputs["records"]) if "records" in inputs else None
    ignored = _reason_to_ignore(given, spec.target.arch)
    usable = given.records if given is not None and ignored is None else ()
    if spec.target.kind == "cpu":
        # Who computes an operator has been decided by optimize.
        usable = tuple(record for record in usable if "provider" not in record.decisions)
    if spec.on_miss == "tune":
        from pydoit.kernels.search import search

        target = make_tvm_target(spec.target)
        usable = tuple(search(module, target, usable, spec.trials or 32, spec.budget_seconds, progress))
    keys = {task.key for task in tasks}
    matching = tuple(record for record in usable if record.key in keys)
    found = {record.key for record in matching}
    missed = [task.name for task in tasks if task.key not in found]
    if missed and spec.on_miss == "error":
        names = ", ".join(missed)
        raise UserError(f"tune: no record for {names} ({ignored or 'the kernels changed'}); run doit tune, check it in")
    records = Records(target=TuningTarget(arch=spec.target.arch), records=matching)
    (out / "records.json").write_text(records.to_text(), encoding="utf-8")
    stale = sorted(record.task for record in usable if record.key not in keys)
    return {"tasks": len(tasks), "matched": len(found), "missed": missed, "stale": stale, "ignored_reason": ignored}


def _reason_to_ignore(records: Any, arch: str) -> str | None:
    if records is None:
        return "the recipe names no records file, or it does not exist"
    if records.target.arch != arch:
        return f"the records are for {records.target.arch}, the target is {arch}"
    return None
