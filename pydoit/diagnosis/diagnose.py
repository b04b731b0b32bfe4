"""All findings of a profile, the worst first, and what bounds the model (pure)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pydoit.diagnosis import build_cost, kernels, whole
from pydoit.diagnosis.facts import Facts
from pydoit.diagnosis.finding import Finding

CLASSES = {"compute": "arithmetic", "memory": "memory", "launch": "calls of kernels"}


@dataclass(frozen=True)
class Diagnosis:
    """What the profile says."""

    bottleneck: str
    """`compute`, `memory` or `scheduling`: what bounds most of the time."""
    text: str
    """The same as a sentence, with figures."""
    findings: tuple[Finding, ...]
    """Of the call's latency, by what they can gain; then of the build's time."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in report.json."""
        return {
            "bottleneck": {"class": self.bottleneck, "text": self.text},
            "findings": [finding.to_json() for finding in self.findings],
        }


def diagnose(facts: Facts) -> Diagnosis:
    """Look at a profile that has kernels."""
    of_calls = [*whole.findings(facts), *kernels.findings(facts)]
    of_builds = list(build_cost.findings(facts))
    if facts.is_language:  # its kernels and passes are chosen otherwise, and its variants are not timed beside each other yet
        of_calls = [replace(finding, assignments=()) for finding in of_calls]
    ordered = [
        *sorted(of_calls, key=lambda one: -(one.gain_ms or 0.0)),
        *sorted(of_builds, key=lambda one: -(one.gain_ms or 0.0)),
    ]
    roofline = facts.annotated["roofline"]
    shares = roofline["shares"]
    name = max(shares, key=lambda which: shares[which])
    reached = min(1.0, roofline["bound_ms"] / max(facts.best_ms, 1e-9))
    text = (
        f"{shares[name]:.0%} of the time is in kernels that {CLASSES[name]} bound{'' if name == 'launch' else 's'}; "
        f"the model runs at {reached:.0%} of this machine's ceilings"
    )
    return Diagnosis("scheduling" if name == "launch" else name, text, tuple(ordered))
