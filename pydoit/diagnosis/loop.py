"""Try what the findings offer, keep what is faster for certain, look again, until nothing gains more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydoit.diagnosis.diagnose import Diagnosis
from pydoit.diagnosis.facts import Facts
from pydoit.diagnosis.finding import Finding
from pydoit.diagnosis.subject import PROFILED, Subject
from pydoit.errors import ModelBuildError
from pydoit.experiments.bootstrap import Ratio
from pydoit.report.numbers import shortened

MARGIN = 0.02
MOST_ROUNDS = 6


@dataclass(frozen=True)
class Trial:
    """One change, measured."""

    finding: Finding
    assignments: tuple[str, ...]
    outcome: str
    """`faster`, `slower`, `same`, `inconclusive`, or why it cannot be built or verified."""
    ratio: Ratio | None = None
    """Its time over that of the best so far."""


@dataclass
class Loop:
    """What was tried, round by round."""

    before: Facts
    after: Facts
    first: Diagnosis
    last: Diagnosis
    kept: tuple[str, ...] = ()
    """Assignments that made it faster, to be written into the recipe."""
    trials: list[Trial] = field(default_factory=list)
    moves: list[str] = field(default_factory=list)
    """Where the bottleneck moved."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "before_ms": self.before.latency_ms,
            "after_ms": self.after.latency_ms,
            "kept": list(self.kept),
            "moves": self.moves,
            "trials": [
                {
                    "finding": trial.finding.kind,
                    "kernel": trial.finding.kernel,
                    "assignments": list(trial.assignments),
                    "outcome": trial.outcome,
                    "ratio": vars(trial.ratio) if trial.ratio else None,
                }
                for trial in self.trials
            ],
            **self.last.to_json(),
        }


def improve(subject: Subject, tell: Callable[[str], object]) -> Loop:
    """Apply one change after the other; each is built, verified, and timed beside the best so far.

    A change is kept when it is faster beyond a margin and its verification still passes; it is never tried twice.
    """
    facts, found = subject.diagnose()
    loop = Loop(facts, facts, found, found)
    tried: set[tuple[str, ...]] = set()
    for _ in range(MOST_ROUNDS):
        offered = [(finding, chosen) for finding in loop.last.findings for chosen in finding.assignments if chosen not in tried]
        if not any(_attempt(subject, loop, finding, chosen, tried, tell) for finding, chosen in offered):
            break
    return loop


def _attempt(
    subject: Subject,
    loop: Loop,
    finding: Finding,
    chosen: tuple[str, ...],
    tried: set[tuple[str, ...]],
    tell: Callable[[str], object],
) -> bool:
    """Whether the change is kept; the loop then knows the faster variant and its diagnosis."""
    tried.add(chosen)
    sets = (*loop.kept, *chosen)
    try:
        base = subject.build("the best so far", loop.kept)
        other = subject.build("the change", sets, stages=(*PROFILED, "verify"))
        ratio = subject.compare(base, other)
    except ModelBuildError as error:
        loop.trials.append(Trial(finding, chosen, str(error)))
        tell(f"{finding.kind}: {error}\n")
        return False
    outcome = ratio.verdict(MARGIN)
    loop.trials.append(Trial(finding, chosen, outcome, ratio))
    tell(f"{finding.kind}: the change is {outcome}, {ratio.text}\n")
    if outcome != "faster":
        return False
    loop.kept = sets
    loop.after, now = subject.diagnose(sets)
    loop.moves.append(_move(loop.last, now))
    loop.last = now
    return True


def _move(before: Diagnosis, after: Diagnosis) -> str:
    """From where to where the bottleneck moved."""
    first, second = (_first(found) for found in (before, after))
    return f"still {first}" if first == second else f"{first} -> {second}"


def _first(found: Diagnosis) -> str:
    if not found.findings:
        return f"none ({found.bottleneck})"
    finding = found.findings[0]
    return f"{finding.bottleneck}: {finding.kind}" + (f" of {shortened(finding.kernel, 60)}" if finding.kernel else "")
