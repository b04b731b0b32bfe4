"""Sums up traced runs of a model by kernel, beside what each costs by the IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from pydoit.profiling.tracer import Run

SUMS = ("flops", "read_bytes", "weight_bytes", "written_bytes")


def summarize(
    runs: Sequence[Run],
    plain_ms: float,
    costs: Mapping[str, Any],
    entry: str,
    serial: Sequence[Run] = (),
    counted: Sequence[Run] = (),
) -> dict[str, Any]:
    """`kernels`, `timeline`, `trace` and `memory` of a profile.

    `plain_ms` is the median of calls that were not traced; `serial` are runs on one thread, `counted` with counters.
    A model whose runs do not all call the same kernels is summed up from its last run.
    """
    steps = _steady(runs)
    times = [median(run.steps[place].ms for run in steps) for place in range(len(steps[0].steps))]
    best = [min(run.steps[place].ms for run in steps) for place in range(len(steps[0].steps))]
    names = [step.kernel for step in steps[0].steps]
    traced_ms = median(run.ms for run in steps)
    middle = min(steps, key=lambda run: abs(run.ms - traced_ms))
    described = costs["entries"].get(entry, {})
    kernels = _by_kernel(names, times, best)
    _add_costs(kernels, described.get("steps", []), costs["functions"])
    for step in steps[0].steps:
        if step.launch:
            kernels[step.kernel]["launch"] = step.launch
    _add_serial(kernels, serial)
    _add_counters(kernels, counted)
    return {
        "kernels": sorted(kernels.values(), key=lambda kernel: -kernel["ms"]),
        "timeline": [
            {"kernel": step.kernel, "start_ms": round(step.start_ms, 5), "ms": round(step.ms, 5)} for step in middle.steps
        ],
        "trace": {
            "plain_ms": plain_ms,
            "traced_ms": traced_ms,
            "kernels_ms": sum(times),
            "gaps_ms": max(0.0, traced_ms - sum(times)),
            "best_gaps_ms": min(run.ms - sum(step.ms for step in run.steps) for run in steps),
            "runs": len(steps),
        },
        "memory": _memory(described),
    }


def _steady(runs: Sequence[Run]) -> list[Run]:
    """Runs that call the same kernels as the last one does."""
    last = [step.kernel for step in runs[-1].steps]
    return [run for run in runs if [step.kernel for step in run.steps] == last]


def _by_kernel(names: Sequence[str], times: Sequence[float], best: Sequence[float]) -> dict[str, dict[str, Any]]:
    everything = sum(times) or 1.0
    found: dict[str, dict[str, Any]] = {}
    for name, ms, least in zip(names, times, best, strict=True):
        kernel = found.setdefault(name, {"name": name, "calls": 0, "ms": 0.0, "best_ms": 0.0})
        kernel["calls"] += 1
        kernel["ms"] += ms
        kernel["best_ms"] += least
    for kernel in found.values():
        kernel["share"] = kernel["ms"] / everything
    return found


def _add_costs(kernels: Mapping[str, dict[str, Any]], steps: Sequence[Mapping[str, Any]], loops: Mapping[str, Any]) -> None:
    """What the IR says: of a kernel that is called as often as the IR calls it, and of no other."""
    for name, kernel in kernels.items():
        mine = [step for step in steps if step["name"] == name]
        if len(mine) == kernel["calls"] and not any(step["partial"] for step in mine):
            kernel.update({key: sum(step[key] for step in mine) for key in SUMS})
            kernel["bytes"] = kernel["read_bytes"] + kernel["written_bytes"]
            kernel["intensity"] = kernel["flops"] / kernel["bytes"] if kernel["bytes"] else None
            kernel["dtype"], kernel["weight_dtype"] = mine[0]["dtype"], mine[0]["weight_dtype"]
        if name in loops:
            kernel["loops"] = loops[name]


def _add_serial(kernels: Mapping[str, dict[str, Any]], serial: Sequence[Run]) -> None:
    """How much faster a kernel is than on one thread."""
    if not serial:
        return
    alone = _by_kernel_median(_steady(serial))
    for name, kernel in kernels.items():
        if alone.get(name) and kernel["ms"]:
            kernel["serial_ms"] = alone[name]
            kernel["speedup"] = alone[name] / kernel["ms"]


def _by_kernel_median(runs: Sequence[Run]) -> dict[str, float]:
    """Milliseconds of all calls of a kernel, each the median over the runs."""
    found: dict[str, float] = {}
    for place, step in enumerate(runs[0].steps):
        found[step.kernel] = found.get(step.kernel, 0.0) + median(run.steps[place].ms for run in runs)
    return found


def _add_counters(kernels: Mapping[str, dict[str, Any]], counted: Sequence[Run]) -> None:
    """Counts of one run, over all threads."""
    if not counted:
        return
    runs = _steady(counted)
    for place, step in enumerate(runs[0].steps):
        for counter in step.counters:
            value = median(run.steps[place].counters[counter] for run in runs)
            sums = kernels[step.kernel].setdefault("counters", {})
            sums[counter] = sums.get(counter, 0) + value


def _memory(described: Mapping[str, Any]) -> dict[str, Any] | None:
    if not described:
        return None
    planned, everything = described["planned_bytes"], described["intermediate_bytes"]
    reuse = 1.0 - planned / everything if planned and everything else None
    figures = {key: described[key] for key in ("planned_bytes", "live_bytes", "intermediate_bytes", "tensors")}
    return {**figures, "reuse": reuse}
