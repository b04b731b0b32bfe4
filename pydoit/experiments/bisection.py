"""Finds what turns a recipe's result bad: the first pass, the function or kernel in it, or the tuning record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydoit.errors import StageError, UserError
from pydoit.experiments.difference import dump
from pydoit.experiments.judges import Judge
from pydoit.experiments.lab import Lab, usable
from pydoit.experiments.order_text import inline
from pydoit.experiments.states import Order, State, edits, prefixes
from pydoit.passes.order import PARTIAL, repeat_of


@dataclass
class Culprit:
    """What was found."""

    recipe: str
    what: str
    """pass | record | start | nothing"""
    name: str = ""
    reason: str = ""
    """Why the state with it is bad."""
    functions: list[str] = field(default_factory=list)
    """Functions of the module that the fault lies in, as far as it could be narrowed down."""
    kernel: str = ""
    """The first kernel whose result differs, or is not finite."""
    builds: int = 0
    states: int = 0
    folder: str = ""
    """Where the reproduction lies."""

    def text(self) -> str:
        """For people."""
        if self.what == "nothing":
            return f"{self.recipe}: nothing is wrong with it ({self.builds} builds)\n"
        if self.what == "start":
            ending = f"; {self.kernel} is the first kernel to show it" if self.kernel else ""
            return f"{self.recipe}: bad before any pass: {self.reason}{ending}; look at the import or the reference\n"
        lines = [f"{self.recipe}: {self.what} {self.name} turns it bad: {self.reason}"]
        lines += [f"  function: {', '.join(self.functions)}"] if self.functions else []
        lines += [f"  first kernel: {self.kernel}"] if self.kernel else []
        lines += [f"  {self.builds} builds over {self.states} states"]
        lines += [f"  reproduce: python {self.folder}/reproduce.py"] if self.folder else []
        return "\n".join(lines) + "\n"


@dataclass
class Bisection:
    """One search for a culprit."""

    lab: Lab
    judge: Judge
    records: Mapping[str, Any] | None = None
    """The recipe's records file, as JSON."""

    def find(self, states: Sequence[State]) -> Culprit:
        """The first bad state by halving; its culprit narrowed down to a function and a kernel."""
        last = self.reason(states[-1])
        if not last:
            return Culprit(self.lab.recipe, "nothing", builds=self.lab.builds)
        first = self.reason(states[0])
        if first:
            found = Culprit(self.lab.recipe, "start", states[0].label, first, states=len(states))
            return self._narrow(found, states[0], states[0])
        low, high, reason = 0, len(states) - 1, last
        while high - low > 1:
            middle = (low + high) // 2
            why = self.reason(states[middle])
            low, high, reason = (low, middle, why) if why else (middle, high, reason)
        bad = states[high]
        found = Culprit(self.lab.recipe, "record" if bad.record else "pass", bad.label, reason, states=len(states))
        return self._narrow(found, states[low], bad)

    def reason(self, state: State) -> str:
        """Why a state is bad; empty when it is good."""
        built = self.lab.build(state.label, state.order, self._sets(state), self.judge.stages)
        reason = self.judge(built)
        self.lab.console.note(f"{self.lab.recipe}: with {state.label}: {reason or 'good'}")
        return reason

    def _sets(self, state: State) -> list[str]:
        """The assignment of a records file with the state's records; none where all are used."""
        if state.records is None or self.records is None:
            return []
        kept = [record for record in self.records["records"] if record["key"] in state.records]
        path = self.lab.workspace.state / "experiments" / self.lab.recipe / f"records-{len(kept)}-{state.record[:12]}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**self.records, "records": kept}, indent=1), encoding="utf-8")
        return [f"tune.records={inline(path.relative_to(self.lab.workspace.root).as_posix())}"]

    def _narrow(self, found: Culprit, good: State, bad: State) -> Culprit:
        found.builds = self.lab.builds
        if bad.record:
            found.functions = [bad.label]
            return self._reproduction(found, good, bad)
        if bad.place is not None:
            found.functions = self._functions(bad)
        found.builds = self.lab.builds
        return self._reproduction(found, good, bad)

    def _functions(self, bad: State) -> list[str]:
        """The changed function that is bad alone, by halving; all that the pass changed where mixed modules do not build."""
        place = bad.place
        assert place is not None
        folder = self._folder()
        measured = dump(self.lab, bad.order, [place], folder)
        changed = list(measured["changed"].get(str(place), []))
        if len(changed) < 2:
            return changed
        low, high = 0, len(changed)
        while high - low > 1:
            middle = (low + high) // 2
            use = bad.order[place]
            mixed = {"name": PARTIAL, "use": use, "functions": changed[:middle], "repeat": repeat_of(use)}
            order = (*bad.order[:place], mixed, *bad.order[place + 1 :])
            built = self.lab.build(f"{bad.label} of {middle} functions", order, self._sets(bad), self.judge.stages)
            if built.failure and not built.measured("verify"):
                return changed  # functions that do not go together say nothing about the fault
            low, high = (low, middle) if self.judge(built) else (middle, high)
        return [changed[low]]

    def _reproduction(self, found: Culprit, good: State, bad: State) -> Culprit:
        """Trace both states, name the first kernel that differs, and save what it takes to see it."""
        folder = self._folder()
        built = usable(self.lab.build("the import", bad.order, stages=("fetch", "import")))
        node = built.session.node(self.lab.recipe, "optimize")
        verify = built.session.node(self.lab.recipe, "verify").spec
        spec = {
            "good": list(good.order), "bad": list(bad.order), "target": node.spec["target"], "folder": str(folder),
            "inputs": verify["model"]["inputs"], "seed": verify["seed"],
            "good_records": _chosen(self.records, good), "bad_records": _chosen(self.records, bad),
        }  # fmt: skip
        names = ("module.json", "spec.json", "params.safetensors")
        files = {name: built.results["import"].files[name].path for name in names}
        try:
            measured = self.lab.work("localize", spec, {"import": files})
        except StageError as error:
            self.lab.console.note(f"{self.lab.recipe}: no kernel could be named: {error}")
            return found
        found.kernel = measured["kernel"]
        found.folder = folder.relative_to(self.lab.workspace.root).as_posix()
        return found

    def _folder(self) -> Path:
        folder = self.lab.workspace.state / "experiments" / self.lab.recipe / "bisect"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _chosen(records: Mapping[str, Any] | None, state: State) -> dict[str, Any]:
    """Decisions by key of the records that a state uses."""
    if records is None:
        return {}
    wanted = state.records
    return {item["key"]: item["decisions"] for item in records["records"] if wanted is None or item["key"] in wanted}


def bisect(lab: Lab, judge: Judge, good: Order | None = None, records: Mapping[str, Any] | None = None) -> Culprit:
    """Find the culprit between nothing (or the order `good`) and the recipe as it is."""
    order = lab.order()
    if good is not None:
        states = edits(good, order, lab.setting())
        if len(states) < 2:
            raise UserError("the good order is the recipe's own; name another, or bisect by a metric of verify")
        return Bisection(lab, judge, records).find(states)
    matched: list[tuple[str, str]] = []
    if records is not None:
        built = usable(lab.build("the recipe", order, stages=("fetch", "import", "optimize", "tune")))
        kept = json.loads(built.results["tune"].files["records.json"].path.read_bytes())
        matched = [(record["key"], record["task"]) for record in kept["records"]]
    return Bisection(lab, judge, records).find(prefixes(order, matched))
