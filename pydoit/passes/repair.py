"""The smallest change that makes an order legal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydoit.errors import UserError
from pydoit.passes.info import Entry
from pydoit.passes.order import Fault, Kind, Setting, check_order, check_use, name_of
from pydoit.passes.registry import all_passes, find_pass

MAX_CHANGES = 4
"""Changes that are tried together; beyond, passes that do not fit are removed one by one."""
MAX_TRIED = 6000
"""Orders that are looked at."""
MAX_WAITING = 40
"""Orders that further changes are tried on."""


@dataclass(frozen=True)
class Repair:
    """A legal order and what was changed to get it."""

    order: tuple[Entry, ...]
    changes: tuple[str, ...]
    """Each as an order to the reader: `move "FoldPad" before "ConvertLayout"`."""


def repair_order(order: Sequence[Entry], setting: Setting) -> Repair:
    """The order itself where it is legal, else one as near to it as can be: fewest changes, of these fewest removals."""
    waiting = [Repair(tuple(order), ())]
    if not check_order(order, setting):
        return waiting[0]
    tried = 0
    for _ in range(MAX_CHANGES):
        legal: list[Repair] = []
        following: list[tuple[int, int, Repair]] = []
        seen: set[str] = set()
        for current in waiting:
            fault = check_order(current.order, setting)[0]
            for candidate in _changed(current, fault, setting):
                left = check_order(candidate.order, setting)
                key = str(candidate.order)
                tried += 1
                if not left:
                    legal.append(candidate)
                # A change that does not get past the fault leads nowhere that another does not lead to.
                elif key not in seen and left[0] != fault and tried < MAX_TRIED:
                    seen.add(key)
                    following.append((len(left), len(following), candidate))
        if legal:
            return min(legal, key=_removals)
        waiting = [candidate for _, _, candidate in sorted(following, key=lambda item: item[:2])][:MAX_WAITING]
    return _without_faulty(Repair(tuple(order), ()), setting)


def _removals(repair: Repair) -> int:
    return sum(change.startswith("remove") for change in repair.changes)


def _without_faulty(current: Repair, setting: Setting) -> Repair:
    while faults := check_order(current.order, setting):
        index = min(faults[0].index, len(current.order) - 1)
        current = _removed(current, index)
    return current


def _changed(current: Repair, fault: Fault, setting: Setting) -> Iterator[Repair]:
    """Single changes that may mend a fault, the least intrusive first."""
    for mend in _MENDS[fault.kind]:
        yield from mend(current, fault.index, setting)


def _corrected(current: Repair, index: int, _: Setting) -> Iterator[Repair]:
    """The nearest known name, or the pass without options that it does not have."""
    import difflib

    use = current.order[index]
    name = name_of(use)
    options = {} if isinstance(use, str) else {option: value for option, value in use.items() if option != "name"}
    if find_pass(name) is None:
        for near in difflib.get_close_matches(name, tuple(all_passes()), n=2, cutoff=0.6):
            entry: Entry = {"name": near, **options} if options else near
            yield _with(current, index, entry, f'write "{near}" for "{name}"')
        return
    kept = {}
    for option, value in options.items():
        try:
            check_use({"name": name, option: value})
        except UserError:
            continue
        kept[option] = value
    if len(kept) == len(options):  # each is good by itself: the pass cannot stand twice in a row
        del kept["repeat"]
    lost = ", ".join(option for option in options if option not in kept)
    yield _with(current, index, {"name": name, **kept} if kept else name, f'remove {lost} of "{name}"')


def _replaced(current: Repair, index: int, setting: Setting) -> Iterator[Repair]:
    """A pass for the target that does the same to the module's state."""
    own = all_passes()[name_of(current.order[index])]
    for name, info in all_passes().items():
        same = (info.requires, info.provides, info.invalidates) == (own.requires, own.provides, own.invalidates)
        if same and own.provides and setting.target in info.targets:
            yield _with(current, index, name, f'write "{name}" for "{name_of(current.order[index])}"')


def _inserted(current: Repair, index: int, setting: Setting) -> Iterator[Repair]:
    """Passes that give a property, put right before the place of the fault."""
    for name, info in all_passes().items():
        if info.provides and setting.target in info.targets:
            order = (*current.order[:index], name, *current.order[index:])
            where = f'before "{name_of(current.order[index])}"' if index < len(current.order) else "at the end"
            yield Repair(order, (*current.changes, f'insert "{name}" {where}'))


def _moved(current: Repair, index: int, _: Setting) -> Iterator[Repair]:
    """The faulty pass at another place, the nearest first; then each pass before it right behind it."""
    places = [place for place in range(len(current.order)) if place != index]
    for place in sorted(places, key=lambda place: abs(place - index)):
        yield _placed(current, index, place)
    for earlier in range(index - 1, -1, -1):
        yield _placed(current, earlier, index)


def _pulled(current: Repair, index: int, _: Setting) -> Iterator[Repair]:
    """Each pass behind the faulty one right before it."""
    for later in range(index + 1, len(current.order)):
        yield _placed(current, later, index)


def _dropped(current: Repair, index: int, _: Setting) -> Iterator[Repair]:
    """The order without the faulty pass."""
    yield _removed(current, index)


def _without_earlier(current: Repair, index: int, _: Setting) -> Iterator[Repair]:
    """The order without one of the passes before the faulty one."""
    for earlier in range(index - 1, -1, -1):
        yield _removed(current, earlier)


_MENDS: Mapping[Kind, tuple[Callable[[Repair, int, Setting], Iterator[Repair]], ...]] = {
    "unknown": (_corrected, _dropped),
    "option": (_corrected, _dropped),
    "target": (_replaced, _dropped),
    "missing": (_inserted, _moved, _pulled, _dropped),
    "invalidated": (_inserted, _moved, _pulled, _dropped, _without_earlier),
    "order": (_moved, _dropped, _without_earlier),
    "unfinished": (_inserted, _without_earlier),
}


def _placed(current: Repair, source: int, place: int) -> Repair:
    order = list(current.order)
    entry = order.pop(source)
    order.insert(place, entry)
    neighbour = f'after "{name_of(order[place - 1])}"' if place > source else f'before "{name_of(order[place + 1])}"'
    return Repair(tuple(order), (*current.changes, f'move "{name_of(entry)}" {neighbour}'))


def _removed(current: Repair, index: int) -> Repair:
    order = (*current.order[:index], *current.order[index + 1 :])
    return Repair(order, (*current.changes, f'remove "{name_of(current.order[index])}"'))


def _with(current: Repair, index: int, entry: Entry, change: str) -> Repair:
    order = (*current.order[:index], entry, *current.order[index + 1 :])
    return Repair(order, (*current.changes, change))
