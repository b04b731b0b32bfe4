"""search: measure schedule candidates, here or on a device behind a tracker; run by `doit tune`, no part of a build's graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydoit.errors import StageError
from pydoit.frozen import Frozen
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.worker import progress

if TYPE_CHECKING:
    from pydoit.kernels.timer import Timer

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
    tracker: str = ""
    """host:port of TVM's RPC tracker; empty to measure on this machine."""
    tracker_key: str = ""
    """Key of the servers that measure."""


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
    chosen = TuningTarget(arch=spec.target.arch, threads=spec.target.threads, device=spec.tracker_key)
    start: dict[str, Record] = {}
    providers: list[Record] = []  # of operators; they are compared again here, and stay as they are with a tracker
    for path in (inputs.get("records"), Path(spec.checkpoint)):
        if path is not None and path.is_file():
            given = read_records(path)
            if given.target.arch == spec.target.arch:
                start |= {record.key: record for record in given.records if record.key in tasks}
                providers += [record for record in given.records if spec.tracker and "provider" in record.decisions]

    def text(records: list[Record]) -> str:
        return Records(target=chosen, records=tuple(records)).to_text()

    def save(records: list[Record]) -> None:
        Path(spec.checkpoint).write_text(text(records), encoding="utf-8")

    target = make_tvm_target(spec.target)
    found = search(module, target, list(start.values()), spec.trials, spec.budget_seconds, progress, save, _timer(spec))
    (out / "records.json").write_text(text([*found, *providers]), encoding="utf-8")
    return {"tasks": len(tasks), "known": len(start), "records": len(found)}


def _timer(spec: Spec) -> Timer:
    from pydoit.farm.tracker import Device
    from pydoit.kernels.timer import LocalTimer, RemoteTimer

    if not spec.tracker:
        return LocalTimer()
    return RemoteTimer(Device(spec.tracker, spec.tracker_key), spec.target.arch, spec.target.threads, progress)
