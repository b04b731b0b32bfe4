"""A finding: what is wrong, the figures that say so, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydoit.experiments.order_text import assign_order
from pydoit.passes.presets import PRESETS

OPTIMIZED = assign_order(PRESETS["O2"])
"""The preset as an order of its own, because that replaces whatever the recipe has."""
Class = Literal["compute", "memory", "scheduling", "compile"]


@dataclass(frozen=True)
class Evidence:
    """A figure and what it is held against."""

    name: str
    value: float
    unit: str = ""
    threshold: float | None = None
    source: str = ""
    """Where the threshold comes from."""


@dataclass(frozen=True)
class Finding:
    """One thing that costs time and can be changed."""

    kind: str
    """What exactly, e.g. `unvectorized`."""
    bottleneck: Class
    title: str
    evidence: tuple[Evidence, ...]
    change: str
    """What to do about it."""
    kernel: str | None = None
    """The kernel or the pass that it is about."""
    assignments: tuple[tuple[str, ...], ...] = ()
    """Changes of the recipe that may help, each a set of `section.key=value`, the most likely first."""
    gain_ms: float | None = None
    """What a change can gain at most: of a call's latency, or of the build for compile cost."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; the bottleneck is `class`."""
        value = asdict(self)
        value["class"] = value.pop("bottleneck")
        return value


def shown(assignments: Sequence[str]) -> list[str]:
    """Assignments as one would write them; the preset by its name."""
    return ['passes.preset="O2"' if assignment == OPTIMIZED else assignment for assignment in assignments]
