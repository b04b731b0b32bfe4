"""Runs a worker that is no part of a build's graph, on files or folders that are there already."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydoit import machine, process
from pydoit.console import Console
from pydoit.errors import StageError
from pydoit.store import Store
from pydoit.workspace import Workspace

Inputs = Mapping[str, Path | Mapping[str, Path]]
"""Name of a folder that the worker sees -> the folder, or names and places of its files."""


def run_apart(
    workspace: Workspace,
    store: Store,
    stage: str,
    spec: Mapping[str, Any],
    inputs: Inputs,
    *,
    label: str,
    log: str,
    console: Console,
    alone: bool = False,
) -> dict[str, Any]:
    """The worker's measurements; `alone` on the machine where it measures. Raises StageError when it fails.

    `label` says to the user what it works on; `log` is the file of its output below the workspace's logs.
    """
    tick = partial(console.running, label, stage)

    def waiting(seconds: float) -> None:
        tick(seconds, "waiting for other work on this machine")

    console.started(label, stage)
    path = workspace.state / "logs" / log
    with store.scratch() as folder:
        (folder / "out").mkdir()
        folders = {
            name: given if isinstance(given, Path) else linked(folder / "inputs" / name, given)
            for name, given in inputs.items()
        }
        job = process.make_job(stage, spec, folders, folder / "out", workspace.root)
        with machine.measuring(waiting) if alone else machine.working(waiting):
            result = process.run_worker(job, folder, path, tick).result
    if result["status"] != "built":
        raise StageError(f"{stage} failed: {result.get('reason', '')} (log: {path.relative_to(workspace.root)})")
    measurements: dict[str, Any] = result["measurements"]
    return measurements


def linked(folder: Path, files: Mapping[str, Path]) -> Path:
    """A folder of links to files by relative name."""
    for name, path in files.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    return folder
