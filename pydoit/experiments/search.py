"""Looks for better orders of passes: legal ones near the best so far, measured beside it, one for each distinct module."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pydoit.errors import ModelBuildError
from pydoit.experiments.bootstrap import Ratio, paired_ratio
from pydoit.experiments.cost import static_seconds
from pydoit.experiments.lab import Lab, usable
from pydoit.experiments.order_text import inline, order_lines
from pydoit.passes.info import Entry
from pydoit.passes.order import Setting, is_legal, name_of
from pydoit.passes.registry import find_pass
from pydoit.passes.sampling import neighbour
from pydoit.text_table import text_table

BATCH = 8
"""Orders that one worker looks at, which starts up once for them."""
BEAM = 4
"""Best orders so far that new ones are made from."""
PROMISING = 1.10
"""Static cost over that of the recipe's order up to which an order is measured."""
MAX_REL = 1e-3
"""Difference to the recipe's order's outputs, relative to what verify allows or to their size, that is an error."""

Order = tuple[Entry, ...]


@dataclass(frozen=True)
class Tried:
    """An order that was looked at."""

    order: Order
    status: str
    """measured | same IR | unpromising | fails | inexact"""
    ir: str = ""
    cost: float = 0.0
    """Static cost over that of the recipe's order."""
    ratio: Ratio | None = None
    """Time over that of the recipe's order."""
    seconds: float = 0.0
    """Time of optimize, tune and compile."""
    library_bytes: int = 0
    untuned: int = 0
    """Kernels without a tuning record."""
    reason: str = ""

    def dominates(self, other: Tried) -> bool:
        """Whether it is no worse in latency, compile time and size, and better in one."""
        mine, theirs = self._figures(), other._figures()
        return all(a <= b for a, b in zip(mine, theirs, strict=True)) and mine != theirs

    def _figures(self) -> tuple[float, float, float]:
        return (self.ratio.ratio if self.ratio else 1.0, self.seconds, float(self.library_bytes))


@dataclass
class Found:
    """What a search came to."""

    recipe: str
    base: Tried
    tried: list[Tried] = field(default_factory=list)

    @property
    def measured(self) -> list[Tried]:
        """Orders whose libraries were timed, the recipe's first."""
        return [self.base, *(item for item in self.tried if item.status == "measured")]

    @property
    def front(self) -> list[Tried]:
        """Orders that no other is better than in all of latency, compile time and size; fastest first."""
        front = [item for item in self.measured if not any(other.dominates(item) for other in self.measured)]
        return sorted(front, key=lambda item: item.ratio.ratio if item.ratio else 1.0)

    @property
    def best(self) -> Tried:
        """The order that is surely faster than the recipe's by most, else the recipe's."""
        better = [item for item in self.measured if item.ratio is not None and item.ratio.verdict() == "faster"]
        return min(better, key=lambda item: item.ratio.ratio if item.ratio else 1.0, default=self.base)

    def counts(self) -> dict[str, int]:
        """Distinct orders, distinct modules, and measurements that were saved by a module known before or by its cost."""
        irs = {item.ir for item in self.tried if item.ir} | {self.base.ir}
        statuses = [item.status for item in self.tried]
        return {
            "orders": 1 + len({_text(item.order) for item in self.tried}),
            "irs": len(irs),
            "measured": len(self.measured),
            "saved": statuses.count("same IR") + statuses.count("unpromising"),
            "failed": statuses.count("fails") + statuses.count("inexact"),
        }

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "schema": 1,
            "experiment": "search",
            "recipe": self.recipe,
            "counts": self.counts(),
            "base": asdict(self.base),
            "best": asdict(self.best),
            "front": [asdict(item) for item in self.front],
            "tried": [asdict(item) for item in self.tried],
        }


def search(lab: Lab, budget: float, rounds: int, seed: int, *, fresh: bool = False, trials: int = 0) -> Found:
    """Try orders for `budget` seconds; what an earlier search of the same module found is taken over unless `fresh`.

    `trials`: schedules measured for each kernel without a record, the recipe's own included, so that all are tuned alike.
    """
    deadline = time.monotonic() + budget
    run = _Run(lab, rounds, seed, _tuning(trials))
    run.begin(fresh)
    while time.monotonic() < deadline:
        try:
            for order in run.promising(run.propose()):
                if time.monotonic() >= deadline:
                    break
                run.measure(order)
        finally:
            run.keep()
        if run.exhausted:
            break
    return run.found


class _Run:
    """State of one search."""

    def __init__(self, lab: Lab, rounds: int, seed: int, sets: Sequence[str]) -> None:
        self.lab, self.rounds, self.seed, self.sets = lab, rounds, seed, tuple(sets)
        self.setting: Setting = lab.setting()
        self.exhausted = False
        self._explored: dict[str, dict[str, Any]] = {}

    def begin(self, fresh: bool) -> None:
        """Build the recipe's own order; take over what was found for the same module."""
        order = self.lab.order()
        self.whole = usable(self.lab.build("the recipe's order", order, self.sets))
        self.best_built = self.whole
        explored = self._explore([order])[0]
        self.cost = static_seconds(explored["figures"])
        base = Tried(order, "measured", explored["ir"], 1.0, Ratio(1.0, 1.0, 1.0), self.whole.seconds,
                     self.whole.library_bytes, len(self.whole.measured("tune").get("missed", ())))  # fmt: skip
        self.found = Found(self.lab.recipe, base)
        path = self._path()
        if not fresh and path.is_file():
            kept = json.loads(path.read_bytes())
            if kept["identity"] == self._identity():
                self.found.tried = [_tried(item) for item in kept["tried"]]
                self.lab.console.note(f"{self.lab.recipe}: goes on from {len(self.found.tried)} orders")

    def propose(self) -> list[Order]:
        """New legal orders near the best ones, seeded by how many were tried before."""
        random = Random(f"{self.seed}/{len(self.found.tried)}")  # noqa: S311 - repeatable choices, no secrets
        ranked = sorted(self.found.measured, key=lambda item: item.ratio.ratio if item.ratio else 1.0)
        parents = [item.order for item in ranked[:BEAM]]
        known = {_text(item.order) for item in self.found.measured} | {_text(item.order) for item in self.found.tried}
        made: list[Order] = []
        for _ in range(BATCH * 20):
            order = random.choice(parents)
            for _step in range(random.randint(1, 3)):
                order = neighbour(random, order, self.setting)
            order = _cleaned(order)
            if _text(order) not in known and is_legal(order, self.setting):
                known.add(_text(order))
                made.append(order)
            if len(made) == BATCH:
                break
        self.exhausted = not made
        return made

    def promising(self, orders: Sequence[Order]) -> list[Order]:
        """Those whose module is new and whose static cost is not much above the recipe's, the cheapest first."""
        chosen: list[tuple[float, Order]] = []
        known = {item.ir for item in self.found.tried if item.ir} | {self.found.base.ir}
        for order, explored in zip(orders, self._explore(orders), strict=True):
            if "failure" in explored:
                self._note(Tried(order, "fails", reason=explored["failure"]))
                continue
            cost = static_seconds(explored["figures"]) / self.cost
            if explored["ir"] in known:
                self._note(Tried(order, "same IR", explored["ir"], cost))
            elif cost > PROMISING:
                self._note(Tried(order, "unpromising", explored["ir"], cost))
            else:
                known.add(explored["ir"])
                self._explored[_text(order)] = {**explored, "cost": cost}
                chosen.append((cost, order))
        return [order for _, order in sorted(chosen, key=lambda item: item[0])]

    def measure(self, order: Order) -> None:
        """Build an order and time it beside the best so far and the recipe's own."""
        explored = self._explored[_text(order)]
        built = self.lab.build("an order", order, self.sets)
        if built.failure:
            self._note(Tried(order, "fails", explored["ir"], explored["cost"], reason=built.failure))
            return
        beside = [self.whole] if self.best_built is self.whole else [self.whole, self.best_built]
        try:
            measured = self.lab.compare([*beside, built], self.rounds)
        except ModelBuildError as error:
            self._note(Tried(order, "fails", explored["ir"], explored["cost"], reason=str(error)))
            return
        wrong = self._wrong(measured["differences"][-1])
        ratio = paired_ratio(measured["times"][0], measured["times"][-1], self.seed)
        tried = Tried(order, "inexact" if wrong else "measured", explored["ir"], explored["cost"], ratio, built.seconds,
                      built.library_bytes, len(built.measured("tune").get("missed", ())), wrong)  # fmt: skip
        self._note(tried)
        if not wrong and paired_ratio(measured["times"][len(beside) - 1], measured["times"][-1]).verdict() == "faster":
            self.best_built = built

    def keep(self) -> None:
        """Write down what was found, so that a search may go on later."""
        document = {"identity": self._identity(), "tried": [asdict(item) for item in self.found.tried]}
        self.lab.save(self._path().name, document)

    def _wrong(self, difference: float | str) -> str:
        bound = self.whole.session.node(self.lab.recipe, "verify").spec["tolerance"].get("max_abs") or MAX_REL
        if isinstance(difference, str) or difference > bound:
            return f"outputs differ by {difference} from those of the recipe's order"
        return ""

    def _note(self, tried: Tried) -> None:
        self.found.tried.append(tried)
        text = tried.reason or (tried.ratio.text if tried.ratio else f"static cost {tried.cost:.2f}")
        self.lab.console.note(f"{self.lab.recipe}: order {len(self.found.tried)}: {tried.status}: {text}")

    def _explore(self, orders: Sequence[Order]) -> list[dict[str, Any]]:
        if not orders:
            return []
        node = self.whole.session.node(self.lab.recipe, "optimize")
        files = {name: self.whole.results["import"].files[name].path for name in ("module.json", "spec.json")}
        spec = {"orders": [list(order) for order in orders], "target": node.spec["target"]}
        found: list[dict[str, Any]] = self.lab.work("explore", spec, {"import": files})["orders"]
        return found

    def _identity(self) -> dict[str, Any]:
        """What the figures hold for."""
        return {"import": self.whole.results["import"].files["module.json"].sha256, "ir": self.found.base.ir,
                "sets": list(self.sets), "order": list(self.found.base.order)}  # fmt: skip

    def _path(self) -> Path:
        return self.lab.workspace.state / "experiments" / self.lab.recipe / "search-state.json"


def summary(found: Found) -> str:
    """For people: counts, the Pareto front, and the better order if there is one."""
    counts = found.counts()
    text = (
        f"{counts['orders']} orders, {counts['irs']} distinct modules, {counts['measured']} measured, "
        f"{counts['saved']} measurements saved, {counts['failed']} failed\n"
    )
    lines = [
        (item.ratio.text if item.ratio else "", f"{item.seconds:.1f} s", f"{item.library_bytes / 1024:,.0f} KiB",
         "the recipe's order" if item is found.base else _changes(found.base.order, item.order))
        for item in found.front
    ]  # fmt: skip
    text += text_table(("latency", "compile", "library", "order"), lines)
    if found.best is found.base:
        return f"{text}No order is surely faster than the recipe's\n"
    better = found.best
    assert better.ratio is not None
    untuned = f"; {better.untuned} of its kernels have no tuning record" if better.untuned else ""
    return f"{text}Faster by {better.ratio.text}{untuned}; write into the recipe:\n{order_lines(better.order)}"


def _changes(old: Order, new: Order) -> str:
    """What an order has that the other has not."""
    before, after = [inline(use) for use in old], [inline(use) for use in new]
    gone = [f"-{item}" for item in _less(before, after)]
    come = [f"+{item}" for item in _less(after, before)]
    return " ".join([*gone, *come]) or "other places"


def _less(items: Sequence[str], others: Sequence[str]) -> Iterable[str]:
    left = list(others)
    for item in items:
        if item in left:
            left.remove(item)
        else:
            yield item


def _cleaned(order: Order) -> Order:
    """Without a pass that follows itself and changes nothing then."""
    kept: list[Entry] = []
    for use in order:
        info = find_pass(name_of(use))
        if not kept or use != kept[-1] or info is None or not info.idempotent:
            kept.append(use)
    return tuple(kept)


def _tuning(trials: int) -> tuple[str, ...]:
    return ('tune.on_miss="tune"', f"tune.trials={trials}") if trials else ()


def _text(order: Order) -> str:
    return inline(list(order))


def _tried(item: Mapping[str, Any]) -> Tried:
    ratio = item["ratio"]
    return Tried(**{**item, "order": tuple(item["order"]), "ratio": Ratio(**ratio) if ratio else None})
