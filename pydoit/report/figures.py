"""The figures of a build that later ones are compared with: how each is called, shown and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydoit.report.numbers import milliseconds, significant, size
from pydoit.report.reading import amount, number, part, parts


@dataclass(frozen=True)
class Kind:
    """One figure."""

    label: str
    shown: Callable[[Any], str]
    small_is_good: bool = True
    margin: float = 0.0
    """Changes within it, as a fraction, are neither good nor bad."""


def _cosine(value: Any) -> str:
    return significant(value, 8)


FIGURES: dict[str, Kind] = {
    "latency_ms": Kind("latency, median", milliseconds, margin=0.02),
    "p95_ms": Kind("latency, 95th percentile", milliseconds, margin=0.05),
    "peak_memory_bytes": Kind("memory of the process, peak", size, margin=0.01),
    "artifact_bytes": Kind("size of the artifact", size),
    "library_bytes": Kind("size of the library", size),
    "max_abs": Kind("largest absolute error", significant, margin=0.01),
    "cosine": Kind("cosine similarity, least", _cosine, small_is_good=False, margin=1e-7),
    "perplexity": Kind("perplexity", lambda value: significant(value, 5), margin=1e-4),
}


def figures_of(report: Mapping[str, Any]) -> dict[str, float]:
    """The figures that a report has."""
    profile, verify, files = part(report, "profile"), part(report, "verify"), parts(report.get("artifact"))
    latency = part(profile, "latency_ms")
    values = {
        "latency_ms": latency.get("median"),
        "p95_ms": latency.get("p95"),
        "peak_memory_bytes": profile.get("peak_memory_bytes"),
        "artifact_bytes": sum(amount(item.get("bytes")) for item in files) if files else None,
        "library_bytes": part(report, "library").get("bytes"),
        "max_abs": verify.get("max_abs"),
        "cosine": verify.get("cosine"),
        "perplexity": verify.get("perplexity"),
    }
    return {name: found for name, value in values.items() if (found := number(value)) is not None}
