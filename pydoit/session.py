"""One command over a workspace: opened recipes, their nodes, the builder, and what to tell the user meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydoit import machine
from pydoit.builder import Builder, Tick
from pydoit.bundle.adopted import Adopted
from pydoit.errors import ModelBuildError, UserError
from pydoit.history import History, sweep
from pydoit.nodes import Node
from pydoit.publish import PAGE, REPORT, STATEMENT
from pydoit.resolve import NO_PINS, Pins, Resolved, describe, resolve
from pydoit.results import Result
from pydoit.stages import ORDER
from pydoit.store import Store
from pydoit.workspace import Workspace

if TYPE_CHECKING:
    from pydoit.farm.executor import Farm
    from pydoit.remote import RemoteCache


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


@dataclass
class Options:
    """What the command line chose."""

    sets: tuple[str, ...] = ()
    stages: tuple[str, ...] = ORDER
    afresh: frozenset[str] = frozenset()
    defer: bool = True
    pins: Mapping[str, Pins] = field(default_factory=dict)
    """What the lock file settles, by recipe."""
    patience: float = 1.0
    """How many times longer than in a build a request to the remote cache may take."""


@dataclass
class Session:
    """State of one command; stages may run in several threads."""

    workspace: Workspace
    options: Options = field(default_factory=Options)
    loaded: dict[str, Resolved] = field(default_factory=dict)
    broken: dict[str, ModelBuildError] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)
    tell: Callable[[str], None] = _to_stderr
    """Shows the user a line that belongs to no stage."""

    def __post_init__(self) -> None:
        self._guard = threading.RLock()
        self._touched: set[str] = set()

    @cached_property
    def store(self) -> Store:
        return Store(self.workspace.store)

    @cached_property
    def history(self) -> History:
        return History(self.workspace.state)

    @cached_property
    def adopted(self) -> Adopted:
        """What bundles brought for stages of this workspace."""
        return Adopted(self.workspace.state)

    @cached_property
    def remote(self) -> RemoteCache | None:
        """The remote cache; None while none is configured."""
        settings = self.workspace.remote
        if not settings.url:
            return None
        from pydoit.remote import open_remote

        return open_remote(settings, self.store, lambda text: self.tell(text), self.options.patience)

    @cached_property
    def farm(self) -> Farm | None:
        """The cluster that runs the stages; None while they run here. `UserError` where it cannot be used as configured."""
        chosen = self.workspace.settings.executor
        if chosen.kind == "local":
            return None
        settings = self.workspace.remote
        if self.remote is None or not settings.writes:
            raise UserError('[executor] kind = "ray" needs a remote cache with mode = "read-write", through which files travel')
        from pydoit.farm.executor import Farm
        from pydoit.farm.ray_cluster import RayCluster

        return Farm(RayCluster(chosen.address), self.remote, settings, self.workspace.root, self.store.stats)

    @cached_property
    def builder(self) -> Builder:
        return Builder(self.workspace, self.store, self.history, self.options.afresh, self.remote, self.adopted, self.farm)

    def sweep(self) -> None:
        """Remove what killed processes left in the store and in this workspace."""
        self.store.sweep()
        state, recipes = self.workspace.state, [self.workspace.artifacts / name for name in self.loaded]
        experiments = [state / "experiments" / name for name in self.loaded]
        outputs = [folder / part for folder in recipes for part in ("", "weights", "tokenizer")]
        for folder in (self.workspace.root, state / "builds", state / "resolved", state / "unpacked", *experiments, *outputs):
            sweep(folder)

    def send(self) -> None:
        """Send what this command built to the remote cache, where builds do that; it never fails."""
        if self.remote is not None and self.remote.writes and self.builder.committed:
            with machine.working(lambda _: None):
                moved = self.remote.push(self.builder.committed)
            if moved.entries:
                self.tell(f"remote cache: sent {moved}")

    def close(self) -> None:
        """Let nobody wait for the remote cache any more."""
        if self.__dict__.get("remote") is not None:
            self.__dict__["remote"].requests.close()

    def open(self, addresses: Iterable[str]) -> None:
        """Load recipes; a broken one is kept aside and blocks no other."""
        for address in dict.fromkeys(addresses):
            try:
                self.loaded[address] = resolve(
                    self.workspace, address, self.options.sets, self.options.pins.get(address, NO_PINS)
                )
            except ModelBuildError as error:
                self.broken[address] = error

    def peek(self, addresses: Iterable[str]) -> None:
        """Read descriptions only, which is fast; a file that cannot be read is kept aside as broken."""
        for address in dict.fromkeys(addresses):
            try:
                self.descriptions[address] = describe(self.workspace, address)
            except ModelBuildError as error:
                self.broken[address] = error

    def node(self, recipe: str, stage: str) -> Node:
        return self.loaded[recipe].nodes[stage]

    def stages(self, recipe: str, chosen: Iterable[str] = ORDER) -> tuple[str, ...]:
        """Those of the chosen stages that the recipe has, in their order."""
        wanted = set(chosen)
        return tuple(stage for stage in ORDER if stage in wanted and stage in self.loaded[recipe].nodes)

    def stages_needed(self, chosen: Sequence[str]) -> tuple[str, ...]:
        """The chosen stages with all that they read, in their order."""
        needed = set(chosen)
        for stage in reversed(ORDER):
            for resolved in self.loaded.values():
                if stage in needed and stage in resolved.nodes:
                    needed |= set(resolved.nodes[stage].reads)
        return tuple(stage for stage in ORDER if stage in needed)

    def examine(self, recipe: str, stage: str) -> Result | None:
        """What is known of a stage without running anything, its upstream examined first."""
        with self._guard:
            return self._examine(recipe, stage)

    def _examine(self, recipe: str, stage: str) -> Result | None:
        known = self.builder.results.get((recipe, stage))
        if known is not None:
            return known
        node = self.node(recipe, stage)
        if any(self._examine(recipe, upstream) is None for upstream in node.reads):
            return None
        if stage in self.options.afresh:
            return None
        result = self.builder.examine(node)
        if result is not None:
            self.builder.results[recipe, stage] = result
        return result

    def is_current(self, recipe: str, stage: str, saved_key: str | None) -> bool:
        """Whether nothing has to be done for a stage: its key is the saved one, its output is there (and published)."""
        result = self.examine(recipe, stage)
        if result is None or result.status != "hit" or result.key != saved_key:
            return False
        if stage == "package" and not self.builder.artifact_is_whole(self.node(recipe, stage), self.loaded[recipe].gates):
            return False
        self._touched.add(recipe)
        return True

    def build(self, recipe: str, stage: str, tick: Tick) -> Result:
        """Bring a stage up to date; the result is kept."""
        self._touched.add(recipe)
        return self.builder.build(self.node(recipe, stage), self.loaded[recipe].gates, tick)

    def record_failed(self, recipe: str, stage: str, reason: str) -> None:
        self.builder.results[recipe, stage] = Result(stage, "failed", reason=reason)
        self._touched.add(recipe)

    def record_skipped(self, recipe: str, stage: str, reason: str = "") -> None:
        """Note a stage that never started; without a reason, the stages before it that failed are the reason."""
        failed = [name for name, result in self.results(recipe).items() if result.status == "failed"]
        reason = reason or f"{', '.join(failed)} failed"
        self.builder.results[recipe, stage] = Result(stage, "skipped", reason=reason)
        self._touched.add(recipe)

    def results(self, recipe: str) -> dict[str, Result]:
        """Results of the recipe's stages so far, in their order."""
        found = {stage: self.builder.results.get((recipe, stage)) for stage in ORDER}
        return {stage: result for stage, result in found.items() if result is not None}

    def write_reports(self) -> None:
        """Record the build and write the reports of every recipe that was looked at, where anything changed."""
        for recipe in sorted(self._touched):
            results = self.results(recipe)
            recorded = self.history.stages(recipe)
            own = self.loaded[recipe].nodes
            missing = {name: value for name, value in recorded.items() if name not in results and name in own}
            folder = self.workspace.artifacts / recipe
            expected = (REPORT, PAGE, *((STATEMENT,) if "package" in results else ()))
            if not self._differs(recorded, results) and all((folder / name).is_file() for name in expected):
                continue
            from pydoit.report.write import complete_report, write_report

            self.history.record(recipe, results, keep=missing)
            report = complete_report(self, recipe)
            self._note(recipe, results, report)
            write_report(folder, report)
            if "package" in results and results["package"].is_good:
                from pydoit.provenance.write import write_provenance

                write_provenance(self, recipe, results["package"])

    def _note(self, recipe: str, results: dict[str, Result], report: Mapping[str, Any]) -> None:
        """A row of the journal for a profile that was measured, and for what failed."""
        from pydoit.regression.journal import Experiment, Journal
        from pydoit.report.write import journal_figures

        journal = Journal(self.workspace.state)
        for stage, result in results.items():
            if stage == "profile" and result.status == "built":
                figures = journal_figures(report, self.history.stages(recipe))
                journal.add(Experiment("profile", recipe, result.reason, figures))
            elif result.status == "failed":
                journal.add(Experiment(stage, recipe, result.reason, {}, "failed", result.reason))

    def _differs(self, recorded: dict[str, Any], results: dict[str, Result]) -> bool:
        return any(
            (recorded.get(stage, {}).get("status"), recorded.get(stage, {}).get("key")) != (result.status, result.key)
            or recorded[stage].get("reason") != result.reason
            for stage, result in results.items()
        )

    def statuses(self) -> dict[str, list[tuple[str, Result]]]:
        """status -> (recipe, result) of everything looked at."""
        found: dict[str, list[tuple[str, Result]]] = {}
        for (recipe, _), result in self.builder.results.items():
            found.setdefault(result.status, []).append((recipe, result))
        return found
