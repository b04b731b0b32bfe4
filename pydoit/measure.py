"""Times and memory of this process as the profile stages report them."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean, median


def statistics(times: list[float]) -> dict[str, float | int]:
    """Median, 95th percentile, least, mean, largest and number of times, in their unit."""
    ordered = sorted(times)
    rank = math.ceil(0.95 * len(ordered)) - 1
    return {
        "median": median(ordered),
        "p95": ordered[rank],
        "min": ordered[0],
        "mean": fmean(ordered),
        "max": ordered[-1],
        "n": len(ordered),
    }


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
