"""What each pass of an order is worth: the order without it, built and measured beside the whole one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydoit.experiments.bootstrap import Ratio, paired_ratio
from pydoit.experiments.lab import Built, Lab, usable
from pydoit.passes.info import Entry
from pydoit.passes.order import Setting, check_order, name_of
from pydoit.passes.registry import find_pass
from pydoit.text_table import text_table

ROUNDS = 40


@dataclass(frozen=True)
class Row:
    """An order with something left out, beside the whole order."""

    left_out: tuple[str, ...]
    """Passes: the first by choice, the others because they are illegal without it."""
    place: int
    """Place of the first in the order."""
    same_ir: bool = False
    """The optimized module is the same: the pass does nothing for this model."""
    failure: str = ""
    """Why the order without it cannot be built."""
    latency: Ratio | None = None
    """Time without the pass over time with it."""
    difference: float | str = 0.0
    """Largest difference of an output to that of the whole order."""
    seconds: float = 0.0
    """Time of optimize, tune and compile."""
    library_bytes: int = 0
    live_bytes: int = 0
    """Most bytes of intermediates alive at a time."""
    kernels: int = 0
    """Kernels of one inference."""

    @property
    def pays(self) -> bool:
        """Whether the model is slower without the pass, surely."""
        return bool(self.failure) or (self.latency is not None and self.latency.verdict() == "slower")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "pays": self.pays}


def without_each(order: Sequence[Entry], setting: Setting) -> Iterator[tuple[int, tuple[str, ...], tuple[Entry, ...]]]:
    """Place, names and rest for each pass left out, with the passes that need it; the first of repeated ones alone too."""
    for place in range(len(order)):
        left_out = [name_of(order[place])]
        rest = [*order[:place], *order[place + 1 :]]
        while faults := check_order(rest, setting):
            index = min(faults[0].index, len(rest) - 1)
            if faults[0].kind == "unfinished":  # a group is left: what made it goes too
                index = max(number for number, use in enumerate(rest) if _makes_groups(use))
            left_out.append(name_of(rest.pop(index)))
        yield place, tuple(left_out), tuple(rest)


def _makes_groups(use: Entry) -> bool:
    info = find_pass(name_of(use))
    return info is not None and "groups" in info.provides


def ablate(lab: Lab, rounds: int = ROUNDS) -> tuple[Built, list[Row]]:
    """The whole order's build, and a row for each pass left out."""
    order, setting = lab.order(), lab.setting()
    whole = usable(lab.build("all passes", order))
    rows: list[Row] = []
    for place, names, rest in without_each(order, setting):
        rows.append(_row(lab, whole, place, names, lab.build(f"without {names[0]}", rest), rounds))
        lab.console.note(f"{lab.recipe}: without {', '.join(names)}: {outcome(rows[-1])}")
    return whole, rows


def outcome(row: Row) -> str:
    """A row in a few words."""
    if row.failure:
        return row.failure
    if row.same_ir or row.latency is None:
        return "no change of the module"
    return row.latency.text


def to_json(whole: Built, rows: Sequence[Row]) -> dict[str, Any]:
    """The experiment as one document."""
    return {
        "schema": 1,
        "experiment": "ablation",
        "recipe": whole.recipe,
        "order": list(whole.session.node(whole.recipe, "optimize").spec["passes"]),
        "whole": {"ir": whole.ir, "seconds": whole.seconds, "library_bytes": whole.library_bytes, **final_figures(whole)},
        "rows": [row.to_json() for row in rows],
    }


def table(recipe: str, whole: Built, rows: Sequence[Row]) -> str:
    """For people: a row a pass, then what never pays for this model."""
    columns = ("left out", "latency without it", "difference", "compile", "library", "memory", "kernels")
    base = final_figures(whole)
    lines = [("nothing", "", "", f"{whole.seconds:.1f} s", _kib(whole.library_bytes), _kib(base.get("live_bytes", 0)),
              str(base.get("kernels", "")))]  # fmt: skip
    for row in rows:
        names = f"{row.place + 1} {row.left_out[0]}" + (f" (and {', '.join(row.left_out[1:])})" if row.left_out[1:] else "")
        if row.failure:
            lines.append((names, f"fails: {row.failure}"[:60], "", "", "", "", ""))
            continue
        shown = row.difference if isinstance(row.difference, str) else f"{row.difference:.2g}"
        lines.append((names, outcome(row), "" if row.same_ir else shown, f"{row.seconds:.1f} s", _kib(row.library_bytes),
                      _kib(row.live_bytes), str(row.kernels)))  # fmt: skip
    idle = [f"{row.place + 1} {row.left_out[0]}" for row in rows if not row.pays and len(row.left_out) == 1]
    ending = f"Without a measured gain for {recipe}: {', '.join(idle)}\n" if idle else f"All passes pay for {recipe}\n"
    return text_table(columns, lines) + ending


def _kib(size: int) -> str:
    return f"{size / 1024:,.0f} KiB"


def _row(lab: Lab, whole: Built, place: int, names: tuple[str, ...], built: Built, rounds: int) -> Row:
    if built.failure:
        return Row(names, place, failure=built.failure)
    figures = final_figures(built)
    costs = {"seconds": built.seconds, "library_bytes": built.library_bytes,
             "live_bytes": figures.get("live_bytes", 0), "kernels": figures.get("kernels", 0)}  # fmt: skip
    if built.ir == whole.ir:
        return Row(names, place, same_ir=True, **costs)
    measured = lab.compare([whole, built], rounds)
    base, other = measured["times"]
    return Row(names, place, latency=paired_ratio(base, other), difference=measured["differences"][1], **costs)


def final_figures(built: Built) -> dict[str, Any]:
    """The module's figures after the last pass; none when passes are not instrumented."""
    log = built.measured("optimize").get("passes") or []
    return dict(log[-1]["figures"] or {}) if log else {}
