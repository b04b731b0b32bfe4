"""Measures one artifact beside another until the answer is clear: several processes, interleaved rounds, in each both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from pydoit.apart import run_apart
from pydoit.console import Console
from pydoit.regression.sides import Side
from pydoit.regression.verdict import Change, Verdict, is_clear, judge, worst
from pydoit.store import Store
from pydoit.workspace import Workspace

LEAST_PROCESSES = 4
"""Before the first look at the result."""
MOST_PROCESSES = 12
ROUNDS = 40
MARGIN = 0.02
QUIET_LOAD = 0.5
"""Load average for each CPU from which on other work is worth a note."""
STEADY_CLOCK = 0.05
"""Change of the mean clock that is worth a note."""


@dataclass
class Comparison:
    """Two artifacts and what was measured of them."""

    first: str
    second: str
    changes: list[Change]
    load_ms: tuple[float, float]
    """Mean time to load each."""
    notes: list[str] = field(default_factory=list)
    """What may have disturbed the measurement."""
    device: str = ""

    @property
    def verdict(self) -> Verdict:
        """On all metrics together."""
        return worst(self.changes)

    def to_json(self) -> dict[str, Any]:
        """One document."""
        return {
            "schema": 1, "experiment": "bench", "first": self.first, "second": self.second, "verdict": self.verdict,
            "device": self.device, "load_ms": list(self.load_ms), "notes": self.notes,
            "changes": [{**vars(change), "verdict": change.verdict} for change in self.changes],
        }  # fmt: skip


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    margin: float = MARGIN
    """Changes within this fraction count for nothing."""
    rounds: int = ROUNDS
    """Rounds of each process."""
    processes: int = MOST_PROCESSES
    """At most."""


def compare(
    workspace: Workspace,
    first: Side,
    second: Side,
    effort: Effort,
    spec: Mapping[str, Any],
    console: Console,
) -> Comparison:
    """Measure in process after process until every metric has a verdict, or the effort is spent.

    The margin keeps the repeated looks honest: chance alone would have to move the whole interval beyond it.
    """
    store = Store(workspace.store)
    notes = _load_note()
    runs: list[dict[str, Any]] = []
    changes: list[Change] = []
    with store.in_use():
        for number in range(effort.processes):
            runs.append(
                _measure(workspace, store, (first, second), {**spec, "rounds": effort.rounds, "swap": number % 2 == 1}, console)
            )
            changes = [judge(metric, [run["times"][metric] for run in runs], effort.margin) for metric in runs[0]["times"]]
            if number + 1 >= LEAST_PROCESSES and is_clear(changes):
                break
    load = tuple(fmean(run["load_ms"][side] for run in runs) for side in (0, 1))
    from pydoit.tools import cpu_name

    return Comparison(first.label, second.label, changes, (load[0], load[1]), [*notes, *_clock_note(runs)], cpu_name())


def _measure(
    workspace: Workspace, store: Store, sides: tuple[Side, Side], spec: Mapping[str, Any], console: Console
) -> dict[str, Any]:
    label = f"{sides[0].label} beside {sides[1].label}"
    folders = {"a": sides[0].folder, "b": sides[1].folder}
    return run_apart(workspace, store, "bench", spec, folders, label=label, log="bench.log", console=console, alone=True)


def _load_note() -> list[str]:
    load, cpus = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load / cpus < QUIET_LOAD:
        return []
    return [f"other work ran on this machine: load {load:.1f} on {cpus} CPUs"]


def _clock_note(runs: list[dict[str, Any]]) -> list[str]:
    clocks = [clock for run in runs for clock in run["clocks"] if clock]
    if not clocks or max(clocks) / min(clocks) < 1 + STEADY_CLOCK:
        return []
    return [f"the CPUs' clock moved between {min(clocks):.0f} and {max(clocks):.0f} MHz"]
