"""What is declared of a pass: options, the state of the module that it needs and leaves, its place in an order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TARGETS = ("cpu", "cuda")
"""Kinds of targets."""
Entry = str | Mapping[str, Any]
"""A pass as recipes write it: its name, or a table of `name`, options and `repeat`."""

MOST_REPEATS = 100
"""Most applications of a pass that an entry of an order may ask for."""


@dataclass(frozen=True)
class Property:
    """Something that holds of a module between two passes."""

    summary: str
    """As in "needs ..."."""
    absent: str
    """As in "cannot follow a pass that ..."."""


PROPERTIES: Mapping[str, Property] = {
    "operators": Property("Relax operators that are not lowered yet", "lowers them to TIR functions"),
    "lowered": Property("operators that are lowered to TIR functions", "leaves them as Relax operators"),
    "weights": Property("weights that `main` still computes with", "moves them to a function of their own"),
    "patterns": Property("TIR functions that are marked by their pattern", "makes new ones without marks"),
    "groups": Property("groups of operators", "turns each into one function"),
    "separate": Property("operators that are not in groups", "groups them"),
    "dataflow": Property("dataflow blocks", "dissolves them"),
}
"""States by name. `lowered` and `operators`, and `groups` and `separate`, take turns; importers give all the others."""

IMPORTED = frozenset({"operators", "weights", "separate", "dataflow"})
"""What holds of an imported module."""
IMPORTED_LANGUAGE = IMPORTED - {"weights"}
"""What holds of a language model's module: its weights are laid out before."""


@dataclass(frozen=True)
class PassInfo:
    """What is known about a pass without importing it."""

    summary: str
    """One sentence for `doit passes`."""
    factory: str
    """`module:attribute` that makes the pass from its options."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Option -> default."""
    requires: frozenset[str] = frozenset()
    """Properties that must hold of the module before it."""
    provides: frozenset[str] = frozenset()
    """Properties that hold after it."""
    invalidates: frozenset[str] = frozenset()
    """Properties that no longer hold after it."""
    after: Mapping[str, str] = field(default_factory=dict)
    """Passes that must not come later than this one, and why."""
    before: Mapping[str, str] = field(default_factory=dict)
    """Passes that must not come earlier than this one, and why."""
    targets: tuple[str, ...] = TARGETS
    """Kinds of targets that it is for."""
    idempotent: bool = True
    """Whether a second run right after the first changes nothing."""
    exact: bool = True
    """Whether results stay as they are but for the order of rounding."""
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Option -> values worth a try in a search, or all that it may have where it is text."""
    package: str = ""
    """Distribution that registers it; ours when empty."""

    def __post_init__(self) -> None:
        """Raises ValueError for a property or target that does not exist."""
        named = self.requires | self.provides | self.invalidates
        unknown = sorted(named - PROPERTIES.keys()) + [target for target in self.targets if target not in TARGETS]
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: no such property or target; known: {', '.join((*PROPERTIES, *TARGETS))}")
