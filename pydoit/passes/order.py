"""Checks an order of passes without running it: what each needs of the module, what the passes before have left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydoit.errors import UserError
from pydoit.passes.info import IMPORTED, IMPORTED_LANGUAGE, MOST_REPEATS, PROPERTIES, Entry, PassInfo
from pydoit.passes.registry import all_passes, find_pass

PARTIAL = "pydoit.passes.partial:Partial"
Kind = Literal["unknown", "option", "target", "missing", "invalidated", "order", "unfinished"]


@dataclass(frozen=True)
class Setting:
    """What an order is for."""

    target: str = "cpu"
    """Kind of target."""
    language: bool = False
    """Whether the model is a language model, whose weights are laid out before the passes."""

    @property
    def start(self) -> frozenset[str]:
        """What holds of the imported module."""
        return IMPORTED_LANGUAGE if self.language else IMPORTED


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with an order."""

    index: int
    """Place in the order of the pass that it shows at; the length of the order for its end."""
    kind: Kind
    text: str
    """What is wrong."""


def split_use(use: Entry) -> tuple[str, dict[str, Any]]:
    """Return name and options of one entry of an order."""
    if isinstance(use, str):
        return use, {}
    options = dict(use)
    options.pop("repeat", None)
    return str(options.pop("name")), options


def repeat_of(use: Entry) -> int:
    """Most applications of one entry of an order, which ends early where the pass changes nothing more."""
    return 1 if isinstance(use, str) else int(use.get("repeat", 1))


def name_of(use: Entry) -> str:
    """Name of one entry of an order."""
    return use if isinstance(use, str) else str(use["name"])


def check_use(use: Entry) -> None:
    """Check name and options of a registered pass; a `module:Class` entry is checked when it is made.

    Raises UserError that lists what is known and names the nearest match.
    """
    fault = _use_fault(use)
    if fault is not None:
        raise UserError(fault[1])


def check_order(order: Sequence[Entry], setting: Setting, known: Mapping[str, PassInfo] | None = None) -> list[Fault]:
    """All faults of an order, in its order; a pass that is itself faulty is taken as if it were not there.

    `known` declares passes of the user's own by their `module:Class`; those that it lacks may stand anywhere.
    """
    faults: list[Fault] = []
    state = State(setting, known)
    for index, use in enumerate(order):
        wrong = _use_fault(use)
        if wrong is not None:
            faults.append(Fault(index, *wrong))
            continue
        inner = _inner(use)
        name = name_of(inner)
        info = state.find(name)
        if info is None:  # a user's own, `module:Class`
            state.note(index, name)
            continue
        found = state.faults(index, name, info)
        if not found:
            state.apply(index, name, info)
            again = state.faults(index, name, info) if repeat_of(use) > 1 else []
            found = [Fault(index, "option", f"repeat: {fault.text}") for fault in again]
        faults += found
    return faults + state.unfinished(len(order))


def is_legal(order: Sequence[Entry], setting: Setting) -> bool:
    """Whether nothing is wrong with an order."""
    return not check_order(order, setting)


class State:
    """What holds of the module while the passes of an order are gone through."""

    def __init__(self, setting: Setting, known: Mapping[str, PassInfo] | None = None) -> None:
        self._setting = setting
        self._known = known or {}
        self.holds = set(setting.start)
        self._lost: dict[str, str] = {}
        self._seen: dict[str, int] = {}

    def find(self, name: str) -> PassInfo | None:
        """What is declared of a pass."""
        return self._known.get(name) or (None if ":" in name else find_pass(name))

    def faults(self, index: int, name: str, info: PassInfo) -> list[Fault]:
        """What is wrong with this pass at this place."""
        kind = self._setting.target
        if kind not in info.targets:
            return [Fault(index, "target", f'"{name}" is for {" and ".join(info.targets)} targets, the target is {kind}')]
        missing = [item for item in PROPERTIES if item in info.requires - self.holds]
        if missing:
            return [self._missing(index, name, missing[0])]
        for other, place in self._seen.items():
            earlier = self.find(other)
            reason = info.before.get(other) or (earlier.after.get(name) if earlier is not None else None)
            if reason:
                return [Fault(index, "order", f'"{name}" must come before "{other}" (order[{place}]): {reason}')]
        return []

    def apply(self, index: int, name: str, info: PassInfo) -> None:
        """Go past this pass."""
        for item in info.invalidates & self.holds:
            self._lost[item] = f'"{name}" (order[{index}])'
        self.holds -= info.invalidates
        self.holds |= info.provides
        self.note(index, name)

    def note(self, index: int, name: str) -> None:
        """Remember where a pass stands."""
        self._seen[name] = index

    def unfinished(self, length: int) -> list[Fault]:
        """What is wrong with the end of the order."""
        if "groups" not in self.holds:
            return []
        return [Fault(length, "unfinished", 'the order ends with groups of operators; "FuseTIR" must turn them into functions')]

    def _missing(self, index: int, name: str, item: str) -> Fault:
        if item in self._lost:
            text = f'"{name}" needs {PROPERTIES[item].summary}; {self._lost[item]} {PROPERTIES[item].absent}'
            return Fault(index, "invalidated", text)
        if item == "weights" and self._setting.language:
            return Fault(index, "missing", f'"{name}" needs {PROPERTIES[item].summary}; a language model has none')
        makers = [f'"{maker}"' for maker, info in all_passes().items() if item in info.provides and self._serves(info)]
        text = f'"{name}" needs {PROPERTIES[item].summary}; {" or ".join(makers)} must come before it'
        return Fault(index, "missing", text)

    def _serves(self, info: PassInfo) -> bool:
        return self._setting.target in info.targets


def _inner(use: Entry) -> Entry:
    """The pass that a `Partial` applies, which does to the module's state what the whole pass does; else the entry itself."""
    name, options = split_use(use)
    return options["use"] if name == PARTIAL and "use" in options else use


def _use_fault(use: Entry) -> tuple[Kind, str] | None:
    name, options = split_use(use)
    repeat = 1 if isinstance(use, str) else use.get("repeat", 1)
    if type(repeat) is not int or not 1 <= repeat <= MOST_REPEATS:
        return "option", f'pass "{name}": repeat = {repeat!r} must be a whole number from 1 to {MOST_REPEATS}'
    if ":" in name:
        return None
    info = find_pass(name)
    if info is None:
        return "unknown", f'pass "{name}" is unknown; {_suggest(name, tuple(all_passes()))}'
    for option, value in options.items():
        if option not in info.options:
            hint = _suggest(option, tuple(info.options)) if info.options else "it has none"
            return "option", f'pass "{name}" has no option "{option}"; {hint}'
        wrong = _value_fault(info, option, value)
        if wrong:
            return "option", f'pass "{name}": {option} = {value!r} {wrong}'
    return None


def _value_fault(info: PassInfo, option: str, value: Any) -> str | None:
    default = info.options[option]
    if default is not None and type(value) is not type(default) and not (type(default) is float and type(value) is int):
        kinds: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        return f"must be {kinds.get(type(default), type(default).__name__)}; the default is {default!r}"
    if isinstance(default, str) and option in info.choices and value not in info.choices[option]:
        return f"is no choice; choose {' or '.join(map(repr, info.choices[option]))}"
    return None


def _suggest(name: str, known: tuple[str, ...]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    return f"{hint}known: {', '.join(known)}"
