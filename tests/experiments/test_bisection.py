"""Bisection, ablation and search over a lab that builds nothing: which states are asked for, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pydoit import passes
from pydoit.experiments.ablation import without_each
from pydoit.experiments.bisection import Bisection, Culprit
from pydoit.experiments.bootstrap import Ratio, paired_ratio
from pydoit.experiments.order_text import inline, order_lines
from pydoit.experiments.recipe_order import edit
from pydoit.experiments.search import Found, Tried, summary
from pydoit.experiments.states import State, edits, finished, most_builds, prefixes
from pydoit.passes.order import Setting, check_order, is_legal, name_of
from pydoit.passes.sampling import neighbour, random_order

RECORDS = [(f"key{number}", f"kernel{number}") for number in range(9)]


@dataclass
class FakeLab:
    """Counts builds; a built thing is its order and its records file's assignment."""

    recipe: str = "x"
    builds: int = 0
    console: Any = field(default_factory=lambda: SimpleNamespace(note=lambda text: None))

    def build(self, label: str, order: Sequence[Any], sets: Sequence[str], stages: Sequence[str]) -> Any:
        self.builds += 1
        return (tuple(order), tuple(sets))


class Narrowless(Bisection):
    """Stops at the state."""

    def _sets(self, state: State) -> list[str]:
        return list(state.records or ())

    def _narrow(self, found: Culprit, good: State, bad: State) -> Culprit:
        found.builds = self.lab.builds
        return found


class Judge:
    """Bad with a pass, or with a record."""

    stages: tuple[str, ...] = ()

    def __init__(self, what: str) -> None:
        self.what = what

    def __call__(self, built: Any) -> str:
        order, records = built
        return "bad" if self.what in [*map(name_of, order), *records] else ""


@pytest.mark.parametrize("seed", range(60))
def test_any_pass_or_record_is_found_in_few_builds(seed: int) -> None:
    random = Random(seed)
    order = list(passes.PRESETS[random.choice(["O1", "O2", "O3"])])
    order.insert(random.randrange(len(order) + 1), "planted:Fault")
    states = prefixes(tuple(order), RECORDS)
    record = random.choice(RECORDS)
    for what, name in (("planted:Fault", "planted:Fault"), record):
        lab: Any = FakeLab()
        found = Narrowless(lab, Judge(what)).find(states)
        assert (found.what, found.name) == ("record" if what == record[0] else "pass", name)
        assert found.builds <= most_builds(len(states))


def test_good_from_end_to_end_and_bad_from_the_start() -> None:
    states = prefixes(tuple(passes.PRESETS["O2"]), ())
    lab: Any = FakeLab()
    assert Narrowless(lab, Judge("nothing")).find(states).what == "nothing"
    assert lab.builds == 1

    class Always(Judge):
        def __call__(self, built: Any) -> str:
            return "bad"

    lab = FakeLab()
    assert Narrowless(lab, Always("")).find(states).what == "start"
    assert lab.builds == 2


@pytest.mark.parametrize("seed", range(40))
def test_states_on_the_way_between_two_orders_are_legal(seed: int) -> None:
    random = Random(seed)
    good = tuple(passes.PRESETS["O2"])
    bad = random_order(random, Setting(), 18) if seed % 2 else neighbour(random, neighbour(random, good, Setting()), Setting())
    states = edits(good, bad, Setting())
    assert states[0].order == good
    assert states[-1].order == bad
    assert all(is_legal(state.order, Setting()) for state in states)


@pytest.mark.parametrize("preset", passes.PRESETS)
def test_every_beginning_of_an_order_is_finished(preset: str) -> None:
    order = tuple(passes.PRESETS[preset])
    for length in range(len(order) + 1):
        assert check_order(finished(order[:length]), Setting()) == []


@pytest.mark.parametrize("preset", passes.PRESETS)
def test_what_is_left_out_takes_what_needs_it_along(preset: str) -> None:
    order = passes.PRESETS[preset]
    rows = list(without_each(order, Setting()))
    assert [place for place, _, _ in rows] == list(range(len(order)))
    for place, names, rest in rows:
        assert names[0] == name_of(order[place])
        assert len(rest) == len(order) - len(names)
        assert is_legal(rest, Setting())


def test_intervals_see_a_difference_and_no_difference() -> None:
    random = Random(1)
    noise = [random.gauss(1.0, 0.1) for _ in range(60)]
    base = [5.0 * item for item in noise]
    slower = [5.4 * item * random.gauss(1.0, 0.02) for item in noise]
    same = [5.0 * item * random.gauss(1.0, 0.02) for item in noise]
    assert paired_ratio(base, slower).verdict() == "slower"
    assert paired_ratio(slower, base).verdict() == "faster"
    assert paired_ratio(base, same).verdict(0.02) == "same"
    assert "+8" in paired_ratio(base, slower).text


def test_orders_are_written_as_toml() -> None:
    import tomli

    order = ["A", {"name": "B", "level": 1, "deep": False, "of": ["x", 'y"'], "use": {"name": "C"}}]
    assert tomli.loads(order_lines(order))["passes"]["order"] == order
    assert tomli.loads(f"x = {inline(order)}")["x"] == order


def test_an_order_is_edited_in_place() -> None:
    import tomlkit

    text = 'order = [\n  "A",  # a\n  "B",\n  # c follows\n  "C",\n]\n'
    document = tomlkit.parse(text)
    edit(document["order"], ["A", "B", "C"], ["A", "C", {"name": "D", "x": 1}])
    written = tomlkit.dumps(document)
    assert document["order"] == ["A", "C", {"name": "D", "x": 1}]
    assert "# a" in written
    assert "# c follows" in written


def test_the_front_and_the_best_of_a_search() -> None:
    base = Tried(("A",), "measured", "1", 1.0, Ratio(1.0, 1.0, 1.0), 10.0, 100)
    faster = Tried(("B",), "measured", "2", 1.0, Ratio(0.9, 0.85, 0.95), 12.0, 100)
    unsure = Tried(("C",), "measured", "3", 1.0, Ratio(0.8, 0.5, 1.2), 9.0, 90)
    worse = Tried(("D",), "measured", "4", 1.0, Ratio(1.1, 1.05, 1.2), 11.0, 120)
    again = Tried(("E",), "same IR", "2")
    found = Found("x", base, [faster, unsure, worse, again])
    assert found.best is faster
    assert worse not in found.front
    assert {*map(id, found.front)} == {id(unsure)}
    assert found.counts() == {"orders": 5, "irs": 4, "measured": 4, "saved": 1, "failed": 0}
    assert "Faster by -10.0 %" in summary(found)
    assert "No order is surely faster" in summary(Found("x", base, [worse]))
