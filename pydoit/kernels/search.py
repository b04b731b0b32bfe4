"""The search for fast tiles: candidates are built in processes of their own, a timer runs them, records keep the best."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydoit.kernels.isolation import run_isolated
from pydoit.kernels.lowering import compile_module
from pydoit.kernels.machine import Machine
from pydoit.kernels.scheduling import schedule_function
from pydoit.kernels.tasks import Task, extract_tasks
from pydoit.kernels.tile import Tile
from pydoit.kernels.tile_space import default_tile, tile_choices
from pydoit.kernels.timer import LocalTimer, Timer
from pydoit.records import Record
from pydoit.tvm_compat import IRModule, te

BUILD_SECONDS = 60.0
"""A candidate that takes longer to compile is given up."""
FINALISTS = 4
"""Candidates that are measured again, in turns with the default."""
FINAL_ROUNDS = 3
LEAST_GAIN = 0.98
"""A tile replaces the default only when its time is below this share: less is within the noise."""


def search(
    module: Any,
    target: Any,
    records: Sequence[Record],
    trials: int,
    budget_seconds: float | None,
    progress: Callable[[str], None],
    checkpoint: Callable[[list[Record]], None] | None = None,
    timer: Timer | None = None,
) -> list[Record]:
    """Measure up to `trials` tiles for each kernel of `module` that `records` lacks; return all records.

    It starts from the given records, stops when `budget_seconds` have passed, and survives candidates that crash or
    hang. After each kernel `checkpoint` gets what was found so far, so that an interrupted search can be continued.
    `timer` measures; this machine does by default. Raises what it raises when it can measure no more.
    """
    found = {record.key: record for record in records}
    waiting = [task for task in extract_tasks(module) if task.key not in found]
    waiting.sort(key=lambda task: (-_work(task), task.name))
    started = time.monotonic()
    with TemporaryDirectory(prefix="modelbuild-tune-") as folder:
        bench = _Bench(target, Path(folder), timer or LocalTimer())
        for number, task in enumerate(waiting, start=1):
            elapsed = time.monotonic() - started
            if budget_seconds is not None and elapsed >= budget_seconds:
                progress(f"budget spent: {len(waiting) - number + 1} of {len(waiting)} kernels keep their default")
                break
            record = _tune(task, bench, trials, budget_seconds and budget_seconds - elapsed)
            elapsed = time.monotonic() - started
            remaining = elapsed / number * (len(waiting) - number)
            progress(f"kernel {number}/{len(waiting)} {task.name}: {_result(record)}, {remaining:.0f} s to go")
            if record is not None:
                found[record.key] = record
                if checkpoint is not None:
                    checkpoint(list(found.values()))
    return list(found.values())


def _tune(task: Task, bench: _Bench, trials: int, seconds: float | None) -> Record | None:
    """Return the best tile of one kernel, None when not even the default could be measured."""
    assert task.plan.anchor is not None
    tiles = tile_choices(task.plan.anchor, bench.machine)[: max(1, trials)]
    times = bench.measure(task, tiles, seconds)
    default = default_tile(task.plan.anchor, bench.machine)
    if default not in times:
        return None
    finalists = sorted(times, key=lambda tile: times[tile])[:FINALISTS]
    rivals = [default, *(tile for tile in finalists if tile != default)]
    for _ in range(FINAL_ROUNDS if len(rivals) > 1 else 0):
        for tile, seconds_taken in bench.measure(task, rivals, None).items():
            times[tile] = min(times[tile], seconds_taken)
    best = min(rivals, key=lambda tile: times[tile])
    if times[best] > times[default] * LEAST_GAIN:
        best = default
    return Record(
        task=task.name,
        key=task.key,
        decisions=best.model_dump(exclude_defaults=True),
        microseconds=round(times[best] * 1e6, 2),
        default_microseconds=round(times[default] * 1e6, 2),
    )


class _Bench:
    """Builds and times tiles of a kernel; keeps what it built until the next kernel."""

    def __init__(self, target: Any, folder: Path, timer: Timer) -> None:
        self.machine = Machine.of(target)
        self._target = target
        self._timer = timer
        self._folder = folder
        self._built: dict[tuple[str, Tile], Path] = {}
        # What TVM imports at its first compilation would otherwise be imported again in each forked process.
        source = te.placeholder((16,), name="source")
        copy = te.create_prim_func([source, te.compute((16,), lambda index: source[index], name="copy")])
        compile_module(IRModule({"main": copy}), target).export_library(str(folder / "first.so"))
        timer.check(copy, folder / "first.so")

    def measure(self, task: Task, tiles: Iterable[Tile], seconds: float | None) -> dict[Tile, float]:
        """Return the least time in seconds of each tile that could be built and run."""
        tiles = list(tiles)
        self._build(task, [tile for tile in tiles if (task.key, tile) not in self._built])
        deadline = None if seconds is None else time.monotonic() + seconds
        times: dict[Tile, float] = {}
        for tile in tiles:
            path = self._built.get((task.key, tile))
            if path is None or (deadline is not None and times and time.monotonic() > deadline):
                continue
            least = self._timer.seconds(task.function, path)
            if least is not None:
                times[tile] = least
        return times

    def _build(self, task: Task, tiles: list[Tile]) -> None:
        if not tiles:
            return
        for key in [key for key in self._built if key[0] != task.key]:
            self._built.pop(key).unlink()
        named = [(tile, self._folder / f"{task.key[:16]}-{number}.so") for number, tile in enumerate(tiles)]
        build = partial(_build_library, task.function, self.machine, self._target)
        built = run_isolated(build, named, os.cpu_count() or 1, BUILD_SECONDS)
        self._built.update({(task.key, tile): path for (tile, path), done in zip(named, built, strict=True) if done})


def _build_library(function: Any, machine: Machine, target: Any, candidate: tuple[Tile, Path]) -> bool:
    """Compile one candidate into a library."""
    tile, path = candidate
    scheduled = schedule_function(function, machine, tile).with_attr("global_symbol", "main")
    compile_module(IRModule({"main": scheduled}), target).export_library(str(path))
    return True


def _work(task: Task) -> int:
    """Multiply-adds of a kernel: the largest are tuned first."""
    assert task.plan.anchor is not None
    total = 1
    for extent in task.plan.anchor.spatial + task.plan.anchor.reduction:
        total *= extent or 1
    return total


def _result(record: Record | None) -> str:
    if record is None:
        return "no candidate could be measured"
    return f"{record.microseconds:.0f} us (default {record.default_microseconds:.0f})"
