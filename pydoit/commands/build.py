"""doit build [RECIPE[@VARIANT]...]: bring recipes up to date."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

from doit.cmd_base import TaskLoader2
from doit.cmd_run import Run
from doit.runner import MThreadRunner
from doit.task import Task

from pydoit import process
from pydoit.commands.base import (
    EXIT_FAILED,
    EXIT_GOOD,
    EXIT_WRONG,
    SET,
    TRACEBACK,
    guarded,
    parse_and_run,
)
from pydoit.console import Console
from pydoit.errors import UserError
from pydoit.loader import database_settings
from pydoit.lockfile.entry import Entry
from pydoit.nearest import nearest
from pydoit.resolve import Pins
from pydoit.results import Result
from pydoit.session import Options, Session
from pydoit.stages import ORDER
from pydoit.tasks import Reporter, WakefulQueue, make_tasks
from pydoit.workspace import open_workspace

DRY_RUN = {"name": "dry_run", "long": "dry-run", "short": "", "type": bool, "default": False,
           "help": "tell what would run and why; run nothing (the same as doit plan)"}  # fmt: skip
STAGES_OPTION = {"name": "stages", "long": "stages", "short": "", "type": str, "default": "",
                 "help": "only these stages (a,b) and what they read"}  # fmt: skip
DEFER = {"name": "defer", "long": "defer", "short": "", "type": bool, "default": True, "inverse": "no-defer",
         "help": "a stage that needs what this machine lacks is listed as deferred; --no-defer: it is an error"}  # fmt: skip
LOCKED = {"name": "locked", "long": "locked", "short": "", "type": bool, "default": False,
          "help": "refuse drift from modelbuild.lock"}  # fmt: skip
FROZEN = {"name": "frozen", "long": "frozen", "short": "", "type": bool, "default": False,
          "help": "use modelbuild.lock unquestioned"}  # fmt: skip
REPRODUCIBLE = {"name": "check_reproducible", "long": "check-reproducible", "short": "", "type": bool, "default": False,
                "help": "build twice from nothing in different surroundings; tell what differs"}  # fmt: skip

INTERRUPT_SECONDS = 3.0


class _OurTasks(TaskLoader2):  # type: ignore[misc]
    """Stands in for doit's dodo.py loader: the command makes its tasks and settings itself."""

    def __init__(self, tasks: list[Task]) -> None:
        super().__init__()
        self._tasks = tasks

    def load_doit_config(self) -> dict[str, Any]:
        return {}

    def load_tasks(self, cmd: Any, pos_args: list[str]) -> list[Task]:
        return self._tasks


class Build(Run):  # type: ignore[misc]
    """doit's own runner over our tasks."""

    name = "build"
    doc_purpose = "build recipes: import, optimize, tune, compile, verify, profile, package"
    doc_usage = "[RECIPE[@VARIANT] ...]"
    cmd_options = (*Run.cmd_options, DRY_RUN, STAGES_OPTION, SET, DEFER, LOCKED, FROZEN, REPRODUCIBLE, TRACEBACK)
    afresh: frozenset[str] = frozenset()
    only: tuple[str, ...] = ()

    def __init__(self, task_loader: Any = None, **kwargs: Any) -> None:
        super().__init__(task_loader=_OurTasks([]), **kwargs)
        self.lock: dict[str, Entry] = {}

    def parse_execute(self, in_args: list[str]) -> int:
        return guarded(lambda: parse_and_run(self, in_args, self.build), in_args)

    def build(self, options: dict[str, Any], names: list[str]) -> int:
        """Open the recipes, run their stages through doit, write the reports; the exit status of the contract."""
        if options["num_process"] < 0:
            raise UserError(f"-n {options['num_process']}: not a number of stages that run side by side; write -n 2")
        session = self.open_session(options, names)
        if not self.keeps_lock(session, options):
            return EXIT_WRONG if session.broken else EXIT_FAILED
        if options["dry_run"]:
            from pydoit.commands.plan import print_plan

            return print_plan(session)
        if options["check_reproducible"]:
            from pydoit.commands.reproducible import check_reproducible

            return check_reproducible(self, session, options)
        if session.loaded:
            self.run_stages(session, options)
        status = self._finish(session)
        return max(status, self._finish_locked(session, options)) if options["locked"] or options["frozen"] else status

    def open_session(self, options: dict[str, Any], names: list[str]) -> Session:
        """The session with the named recipes, or the workspace's default ones; broken ones are told at once."""
        workspace = open_workspace()
        chosen = names or list(workspace.settings.default)
        if not chosen:
            raise UserError("nothing to build; name a recipe, or list some as `default = [...]` in modelbuild.toml")
        stages = self.only or chosen_stages(options["stages"])
        pins: dict[str, Pins] = {}
        if options["locked"] or options["frozen"]:
            from pydoit.lockfile.file import require_lock
            from pydoit.lockfile.guard import make_pins

            self.lock = require_lock(workspace.root)
            pins = make_pins(self.lock, frozen=options["frozen"])
        session = Session(workspace, Options(tuple(options["set"]), stages, self.afresh, options["defer"], pins))
        session.open(chosen)
        if options["locked"] or options["frozen"]:
            from pydoit.lockfile.guard import require_entries

            require_entries(session, self.lock)
        for error in session.broken.values():
            sys.stderr.write(f"{error}\n")
        return session

    def keeps_lock(self, session: Session, options: dict[str, Any]) -> bool:
        """With --locked: whether nothing drifted, a line for each that did; then only locked artifacts are published."""
        if not options["locked"]:
            return True
        from pydoit.lockfile.guard import expect_artifacts, input_drift

        drifts = input_drift(session, self.lock)
        sys.stderr.write("".join(f"{drift}\n" for drift in drifts))
        expect_artifacts(session, self.lock)
        return not drifts

    def run_stages(self, session: Session, options: dict[str, Any]) -> None:
        """Run the session's stages through doit; what came of them is in the session."""
        console = Console()
        session.tell = console.note
        stages = session.stages_needed(session.options.stages)
        session.workspace.make_state()
        self.loader = _OurTasks(make_tasks(session, console, stages))
        process.reset()
        previous = signal.signal(signal.SIGTERM, _terminate)
        try:
            with session.store.in_use():
                session.sweep()
                self._run_doit(session, console, options)
                session.send()
        finally:
            process.stop_all()
            session.close()
            session.store.wait_until_idle(INTERRUPT_SECONDS)
            signal.signal(signal.SIGTERM, previous)
            session.write_reports()

    def _run_doit(self, session: Session, console: Console, options: dict[str, Any]) -> None:
        parameters, _ = self.cmdparser.parse([])
        parameters.update(
            {name: options[name] for name in ("num_process", "always", "single", "pdb") if options.get(name) is not None}
        )
        parameters.update({"continue": True, "par_type": "thread", "reporter": Reporter(session, console)})
        parameters.update(database_settings(session))
        MThreadRunner.Queue = staticmethod(WakefulQueue)
        self.execute(parameters, list(session.loaded))

    def _finish(self, session: Session) -> int:
        summarize(session)
        statuses = session.statuses()
        if session.broken:
            return EXIT_WRONG
        bad = [*statuses.get("failed", []), *statuses.get("skipped", [])]
        if not session.options.defer:
            bad += statuses.get("deferred", [])
        return EXIT_FAILED if bad else EXIT_GOOD

    def _finish_locked(self, session: Session, options: dict[str, Any]) -> int:
        from pydoit.lockfile.guard import foreign_arch, output_drift

        drifts = output_drift(session, self.lock) if options["locked"] else []
        sys.stderr.write("".join(f"{line}\n" for line in [*foreign_arch(session, self.lock), *drifts]))
        return EXIT_FAILED if drifts else EXIT_GOOD


def summarize(session: Session) -> None:
    """One line a recipe on stdout: what it came to and the figures that matter."""
    for recipe in session.loaded:
        results = session.results(recipe)
        if not results:
            continue
        sys.stdout.write(f"{recipe}: {_verdict(session, recipe, results)}\n")
        for result in results.values():
            if result.status == "deferred":
                sys.stdout.write(f"  {result.stage} is deferred: {result.reason}\n")
    sys.stdout.flush()


def _verdict(session: Session, recipe: str, results: dict[str, Result]) -> str:
    bad = [f"{result.stage} failed: {result.reason}" for result in results.values() if result.status == "failed"]
    skipped = [result for result in results.values() if result.status == "skipped"]
    if skipped:
        bad.append(f"skipped {', '.join(result.stage for result in skipped)}" + ("" if bad else f": {skipped[0].reason}"))
    if bad:
        return "; ".join(bad)
    done = [
        f"{status} {', '.join(names)}"
        for status in ("restored", "built")
        if (names := [result.stage for result in results.values() if result.status == status])
    ]
    parts = [", ".join(done) or "up to date", *_figures(results)]
    if "package" in results and results["package"].is_good:
        parts.append((session.workspace.artifacts / recipe).relative_to(session.workspace.root).as_posix() + "/")
    return "; ".join(parts)


def _figures(results: dict[str, Result]) -> list[str]:
    figures = []
    verify, profile = results.get("verify"), results.get("profile")
    if verify is not None and "max_abs" in verify.measurements:
        values = verify.measurements
        figures.append(f"max_abs {values['max_abs']:.2g}, cosine {values['cosine']:.7f} ({values.get('samples')} inputs)")
    if profile is not None and "latency_ms" in profile.measurements:
        figures.append(f"median {profile.measurements['latency_ms']['median']:.2f} ms")
    return figures


def chosen_stages(text: str) -> tuple[str, ...]:
    """The stages of `--stages`, all without it; `UserError` for an unknown one."""
    chosen = tuple(name.strip() for name in text.split(",")) if text else ()
    for name in chosen:
        if name not in ORDER:
            raise UserError(f"--stages {text}: there is no stage {name!r}; {nearest(name, list(ORDER))}")
    return chosen or ORDER


def _terminate(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the command through its `finally` blocks, so that doit's database is saved."""
    process.stop_all()
    sys.exit(128 + number)
