"""Times and memory of this process as the profile stages report them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

Call = Callable[[], Any]
TAIL = 100
"""Least number of times that a 99th percentile is read from."""


def statistics(times: list[float]) -> dict[str, float | int]:
    """Median, 95th and 99th percentile, least, mean, largest and number of times, in their unit.

    The 99th percentile of fewer than `TAIL` times would be their largest; it is left out.
    """
    ordered = sorted(times)
    tail = {"p99": _percentile(ordered, 0.99)} if len(ordered) >= TAIL else {}
    return {
        "median": median(ordered),
        "p95": _percentile(ordered, 0.95),
        **tail,
        "min": ordered[0],
        "mean": fmean(ordered),
        "max": ordered[-1],
        "n": len(ordered),
    }


def _percentile(ordered: Sequence[float], part: float) -> float:
    """The least of the times that at least `part` of them do not exceed."""
    return ordered[math.ceil(part * len(ordered)) - 1]


def reset_peak_memory() -> None:
    """Forget the peak so far (Linux), so that what was imported and freed before does not count."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory() -> int:
    """Largest resident size of this process in bytes: library, weights, workspace and the Python process itself."""
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def repeats_of(call: Call, *, warmup: int, seconds: float) -> int:
    """Calls that a sample takes to last at least `seconds`, found after `warmup` calls."""
    for _ in range(warmup):
        call()
    return max(1, int(seconds / max(sample_of(call, 1) / 1000.0, 1e-6)))


def sample_of(call: Call, repeats: int) -> float:
    """Milliseconds of a call, the mean of `repeats`."""
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - started) * 1000.0 / repeats


def interleaved(
    calls: Sequence[Call], repeats: Sequence[int], rounds: int, tell: Callable[[str], None] = lambda _: None
) -> list[list[float]]:
    """Milliseconds of each call by round; a round takes a sample of each, every other round in the opposite order."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(rounds):
        tell(f"round {number + 1} of {rounds}")
        for index in range(len(calls))[:: -1 if number % 2 else 1]:
            times[index].append(sample_of(calls[index], repeats[index]))
    return times
