"""A session's stages as doit tasks: a task a stage, a group a recipe."""

from __future__ import annotations

import contextlib
import queue
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from doit.exceptions import TaskFailed, UnmetDependency
from doit.task import Task

from pydoit.console import Console
from pydoit.session import Session
from pydoit.stages import ORDER, STAGES

WAKE_SECONDS = 0.2
DESCRIPTIONS = {
    "fetch": "bring the model's files here and check their digests",
    "import": "model -> Relax module and parameters",
    "optimize": "run the recipe's passes: Relax -> fused TIR",
    "tune": "match the tuning records with the module",
    "compile": "module and records -> lib.so",
    "quantize": "round the weights so that errors make up for each other on a text",
    "weights": "parameters -> the weights that the library takes",
    "tokenizer": "the model's tokenizer, as the artifact carries it",
    "verify": "compare the library with the reference",
    "profile": "measure latency, throughput and memory",
    "package": "assemble and publish the artifact",
}


def make_tasks(session: Session, console: Console, stages: Iterable[str] = ORDER) -> list[Task]:
    """Tasks of all recipes that the session has loaded."""
    chosen = tuple(stages)
    tasks: list[Task] = []
    for recipe in session.loaded:
        own = session.stages(recipe, chosen)
        names = [f"{recipe}:{stage}" for stage in own]
        tasks.append(Task(recipe, None, task_dep=names, has_subtask=True, doc=session.loaded[recipe].description))
        tasks += [_stage_task(session, console, recipe, stage, own) for stage in own]
    return tasks


def name_tasks(descriptions: Mapping[str, str]) -> list[Task]:
    """Tasks to be listed, not run: names and descriptions alone, of the stages that every recipe has."""
    tasks: list[Task] = []
    for recipe, description in descriptions.items():
        names = [f"{recipe}:{stage}" for stage in STAGES]
        tasks.append(Task(recipe, None, task_dep=names, has_subtask=True, doc=description))
        for stage, name in zip(STAGES, names, strict=True):
            tasks.append(Task(name, None, subtask_of=recipe, doc=DESCRIPTIONS[stage]))
    return tasks


def _stage_task(session: Session, console: Console, recipe: str, stage: str, chosen: tuple[str, ...]) -> Task:
    needed = [f"{recipe}:{name}" for name in session.node(recipe, stage).upstream if name in chosen]

    def is_current(task: Task, values: Mapping[str, Any]) -> bool:
        return session.is_current(recipe, stage, values.get("key"))

    def run() -> Any:
        console.started(recipe, stage)
        result = session.build(recipe, stage, lambda seconds, text: console.running(recipe, stage, seconds, text))
        console.ended(recipe, result)
        if result.is_good:
            return {"key": result.key}
        if result.status == "deferred" and session.options.defer:
            return {"key": None}
        return TaskFailed(result.reason or result.status, report=False)

    return Task(
        f"{recipe}:{stage}",
        [run],
        uptodate=[is_current],
        task_dep=needed,
        subtask_of=recipe,
        doc=DESCRIPTIONS.get(stage, stage),
        io={"capture": False},
        clean=[(_clean, [session, recipe])] if stage == "package" else [],
        meta={"recipe": recipe, "stage": stage},
    )


def _clean(session: Session, recipe: str, dryrun: bool) -> None:
    """Remove the recipe's artifact; the store keeps its entries."""
    folder = session.workspace.artifacts / recipe
    if folder.is_dir():
        sys.stdout.write(f"removing {folder.relative_to(session.workspace.root)}\n")
        if not dryrun:
            shutil.rmtree(folder)


class WakefulQueue(queue.Queue[Any]):
    """A queue whose `get` wakes up now and then, for doit's threads.

    A signal that arrives just before the main thread blocks on a lock is handled only when the lock is taken: Ctrl-C
    would wait for the running stage to end.
    """

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        while block and timeout is None:
            with contextlib.suppress(queue.Empty):
                return super().get(timeout=WAKE_SECONDS)
        return super().get(block, timeout)


class Reporter:
    """doit's reporter interface: hits and skips are noted, everything else was shown when it happened."""

    desc = "doit-modelbuild"

    def __init__(self, session: Session, console: Console) -> None:
        self._session = session
        self._console = console

    def initialize(self, tasks: Mapping[str, Task], selected_tasks: Iterable[str]) -> None:
        """Nothing to prepare."""

    def get_status(self, task: Task) -> None:
        """Called before a task is looked at."""

    def execute_task(self, task: Task) -> None:
        """Shown by the task itself."""

    def add_success(self, task: Task) -> None:
        """Shown by the task itself."""

    def skip_uptodate(self, task: Task) -> None:
        """A hit; told once a recipe at the end."""

    def skip_ignore(self, task: Task) -> None:
        if task.meta is not None:
            self._session.record_skipped(task.meta["recipe"], task.meta["stage"], "ignored by `doit ignore`")

    def add_failure(self, task: Task, fail: Any) -> None:
        """A failed stage has told its reason; one that never started is noted as skipped, a fault of ours is shown."""
        if task.meta is None:  # the recipe's group: its stages have told
            return
        recipe, stage = task.meta["recipe"], task.meta["stage"]
        known = self._session.builder.results.get((recipe, stage))
        if known is not None and not known.is_good:
            return
        if isinstance(fail, UnmetDependency):
            self._session.record_skipped(recipe, stage)
            return
        self._session.record_failed(recipe, stage, fail.get_msg().strip().splitlines()[-1])
        self._console.note(fail.get_msg())

    def cleanup_error(self, exception: Any) -> None:
        self._console.note(exception.get_msg())

    def runtime_error(self, message: str) -> None:
        self._console.note(message)

    def teardown_task(self, task: Task) -> None:
        """Stages have no teardown."""

    def complete_run(self) -> None:
        """The command prints the summary."""
