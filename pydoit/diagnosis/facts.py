"""What a diagnosis looks at, from the last build's measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydoit.profiling.roofline import annotate, bandwidth


@dataclass(frozen=True)
class Facts:
    """Of one recipe on one machine."""

    profile: Mapping[str, Any]
    """Measurements of the profile stage."""
    ceilings: Mapping[str, Any]
    """Of the machine that measured it (`pydoit.profiling.ceilings`)."""
    optimize: Mapping[str, Any] = field(default_factory=dict)
    """Measurements of the optimize stage: `passes`, `pass_seconds`."""
    compile: Mapping[str, Any] = field(default_factory=dict)
    """Measurements of the compile stage: seconds, `functions`, `tuned`."""
    target: Mapping[str, Any] = field(default_factory=dict)
    """The recipe's target: kind, arch, threads, precision."""
    onednn: bool = False
    """Whether oneDNN is installed here."""

    @cached_property
    def annotated(self) -> dict[str, Any]:
        """The profile with the roofline."""
        return annotate(self.profile, self.ceilings)

    @cached_property
    def kernels(self) -> list[dict[str, Any]]:
        """Slowest first, each with bounds and `best_ms`, the time of an undisturbed run."""
        return [{"best_ms": kernel["ms"], **kernel} for kernel in self.annotated.get("kernels") or []]

    @property
    def latency_ms(self) -> float:
        """The median of a call that is not traced."""
        return float(self.profile["latency_ms"]["median"])

    @property
    def kernels_ms(self) -> float:
        """All kernels of an undisturbed call."""
        return float(sum(kernel["best_ms"] for kernel in self.kernels))

    @property
    def best_ms(self) -> float:
        """An undisturbed call: all kernels' best times and the gaps between them."""
        return self.kernels_ms + self.gaps_ms

    @property
    def gaps_ms(self) -> float:
        """Time of a call in no kernel: that of the least disturbed traced run, but no more than an untraced call has."""
        trace = self.profile.get("trace") or {}
        traced = float(trace.get("best_gaps_ms", trace.get("gaps_ms", 0.0)))
        plain = float(self.profile["latency_ms"].get("min", self.latency_ms)) - self.kernels_ms
        return min(traced, max(0.0, plain))

    @property
    def threads(self) -> int:
        """Threads that share a kernel's work."""
        return int(self.profile.get("threads") or 1)

    @property
    def names(self) -> list[str]:
        """Names of the recipe's passes in their order."""
        return [entry["name"] for entry in self.optimize.get("passes") or []]

    @property
    def is_language(self) -> bool:
        """Whether it is a language model's profile: of one decoded token."""
        return "decode" in self.profile

    @property
    def fuses(self) -> bool:
        """Whether the order fuses operators."""
        return "FuseOps" in self.names or "FuseOpsGuarded" in self.names

    def far_bandwidth(self) -> float:
        """Bytes a second from memory that no cache holds."""
        return bandwidth(self.ceilings, float("inf"))

    def utilization(self, kernel: Mapping[str, Any]) -> float | None:
        """Time at the ceilings over the best time; None where the IR does not say what the kernel costs."""
        if kernel.get("bound_ms") is None or not kernel["best_ms"]:
            return None
        return min(1.0, float(kernel["bound_ms"]) / float(kernel["best_ms"]))
