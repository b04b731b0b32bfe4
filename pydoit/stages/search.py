"""search: measure schedule candidates on this machine; run by `doit tune`, no part of a build's graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.errors import StageError
from pydoit.frozen import Frozen
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.worker import progress

TOOLS = ("apache-tvm", "apache-tvm-ffi")
READS = {"optimize": ("module.json",)}


class Spec(Frozen):
    """How long and for what to search."""

    trials: int
    """Candidates measured for each kernel."""
    budget_seconds: float | None = None
    """Longest time of the search."""
    checkpoint: str
    """File that holds the records found so far; an interrupted search goes on from it."""
    target: ResolvedTarget
    """What the candidates are compiled for."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write records.json: the given records (inputs["records"], same arch) with what the search added."""
    from pydoit.kernels.search import search
    from pydoit.kernels.tasks import extract_tasks
    from pydoit.records import Record, Records, TuningTarget, read_records
    from pydoit.tvm_compat import load_json

    module = load_json((inputs["optimize"] / "module.json").read_text(encoding="utf-8"))
    tasks = {task.key for task in extract_tasks(module)}
    if not tasks:
        raise StageError('tune: this module has no kernel to tune; use passes = { preset = "O2" }')
    chosen = TuningTarget(arch=spec.target.arch, threads=spec.target.threads)
    start: dict[str, Record] = {}
    for path in (inputs.get("records"), Path(spec.checkpoint)):
        if path is not None and path.is_file():
            given = read_records(path)
            if given.target.arch == spec.target.arch:
                start |= {record.key: record for record in given.records if record.key in tasks}

    def text(records: list[Record]) -> str:
        return Records(target=chosen, records=tuple(records)).to_text()

    def save(records: list[Record]) -> None:
        Path(spec.checkpoint).write_text(text(records), encoding="utf-8")

    target = make_tvm_target(spec.target)
    found = search(module, target, list(start.values()), spec.trials, spec.budget_seconds, progress, save)
    (out / "records.json").write_text(text(found), encoding="utf-8")
    return {"tasks": len(tasks), "known": len(start), "records": len(found)}
