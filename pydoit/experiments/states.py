"""The states between a good and a bad recipe, a change each: what a bisection halves."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydoit.experiments.order_text import inline
from pydoit.passes.info import Entry
from pydoit.passes.order import Setting, is_legal, name_of
from pydoit.passes.registry import find_pass

Order = tuple[Entry, ...]


@dataclass(frozen=True)
class State:
    """A recipe on the way from what is good to what is bad."""

    label: str
    """What was added to the state before it."""
    order: Order
    records: tuple[str, ...] | None = None
    """Keys of the tuning records that are used; None: all."""
    place: int | None = None
    """Place in the order of the pass that was added."""
    record: str = ""
    """Key of the record that was added."""


def prefixes(order: Order, records: Sequence[tuple[str, str]]) -> list[State]:
    """From no pass and no record to all: a pass more each, then a record (key, name) more each."""
    states = [State("no pass", (), ())]
    states += [State(name_of(use), finished(order[: place + 1]), (), place) for place, use in enumerate(order)]
    keys = [key for key, _ in records]
    for number, (key, name) in enumerate(records):
        states.append(State(name, order, tuple(keys[: number + 1]), record=key))
    return states


def edits(good: Order, bad: Order, setting: Setting) -> list[State]:
    """From one order to another, an insertion or removal at a time; orders that are illegal on the way are skipped."""
    before, after = [inline(use) for use in good], [inline(use) for use in bad]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    current, shift = list(good), 0
    states, pending = [State("the good order", good)], list[str]()
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag == "equal":
            continue
        steps: list[tuple[str, int, Entry | None]] = [("remove", first + shift, None) for _ in range(first, last)]
        steps += [("insert", first + shift + offset, use) for offset, use in enumerate(bad[start:end])]
        shift += (end - start) - (last - first)
        for kind, place, use in steps:
            if use is None:
                pending.append(f"without {name_of(current.pop(place))}")
            else:
                current.insert(place, use)
                pending.append(name_of(use))
            if is_legal(current, setting):
                added = place if kind == "insert" and len(pending) == 1 else None
                states.append(State(", ".join(pending), tuple(current), place=added))
                pending = []
    return states


def finished(order: Order) -> Order:
    """The order with groups that are left made functions."""
    waiting = False
    for use in order:
        info = find_pass(name_of(use))
        if info is not None:
            waiting = "groups" in info.provides or (waiting and "groups" not in info.invalidates)
    return (*order, "FuseTIR") if waiting else order


def most_builds(states: int) -> int:
    """The number of builds that halving takes for the chain itself."""
    return math.ceil(math.log2(max(states, 2))) + 2
