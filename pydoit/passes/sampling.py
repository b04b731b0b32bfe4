"""Legal orders at random: from nothing, and near a given one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from pydoit.passes.info import Entry
from pydoit.passes.order import Setting, State, is_legal, name_of, split_use
from pydoit.passes.registry import all_passes, find_pass

ATTEMPTS = 50
"""Changes that are tried before an order is left as it is."""


def random_order(random: Random, setting: Setting, length: int) -> tuple[Entry, ...]:
    """A legal order of about `length` passes: at each place any pass that may stand there."""
    state, order = State(setting), list[Entry]()
    while len(order) < length or "groups" in state.holds:
        allowed = list(_allowed(state, len(order), order[-1] if order else None))
        name = "FuseTIR" if len(order) >= length else random.choice(allowed)
        order.append(_with_options(random, name))
        info = find_pass(name)
        assert info is not None
        state.apply(len(order) - 1, name, info)
    return tuple(order)


def neighbour(random: Random, order: Sequence[Entry], setting: Setting) -> tuple[Entry, ...]:
    """The order with one pass moved, added, left out or given other options; still legal."""
    for _ in range(ATTEMPTS):
        changed = _changed(random, list(order))
        if tuple(changed) != tuple(order) and is_legal(changed, setting):
            return tuple(changed)
    return tuple(order)


def _allowed(state: State, place: int, last: Entry | None) -> Iterator[str]:
    for name, info in all_passes().items():
        is_repeat = last is not None and name == name_of(last) and info.idempotent
        if not is_repeat and not state.faults(place, name, info):
            yield name


def _changed(random: Random, order: list[Entry]) -> list[Entry]:
    kind = random.choice(("move", "add", "remove", "options")) if order else "add"
    place = random.randrange(len(order)) if order else 0
    if kind == "move":
        entry = order.pop(place)
        order.insert(random.randrange(len(order) + 1), entry)
    elif kind == "add":
        order.insert(random.randrange(len(order) + 1), _with_options(random, random.choice(list(all_passes()))))
    elif kind == "remove":
        order.pop(place)
    else:
        order[place] = _with_options(random, split_use(order[place])[0])
    return order


def _with_options(random: Random, name: str) -> Entry:
    """The pass, one time in two with one of the values that are worth a try."""
    info = find_pass(name)
    if info is None or not info.choices or random.random() < 0.5:
        return name
    chosen = {option: random.choice(values) for option, values in info.choices.items()}
    changed = {option: value for option, value in chosen.items() if value != info.options[option]}
    return {"name": name, **changed} if changed else name
