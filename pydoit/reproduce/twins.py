"""Builds recipes twice from nothing, each time elsewhere, and compares what comes out, stage by stage."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydoit.errors import StageError
from pydoit.reproduce.difference import differences
from pydoit.reproduce.surroundings import BOTH, Surroundings, command, copy_workspace, environment, fake_clock, varied
from pydoit.session import Session
from pydoit.stages import ORDER
from pydoit.store import Store


@dataclass(frozen=True)
class Verdict:
    """What two builds of a recipe came to."""

    recipe: str
    files: Mapping[str, str]
    """File of the artifact -> sha256 in the first build."""
    differing: Mapping[str, Sequence[str]]
    """File that differs -> what differs in it; empty when the builds are the same."""
    stage: str = ""
    """The first stage whose output differs, with its files."""
    varied: str = ""
    """What the two builds differed in."""


@dataclass(frozen=True)
class Twin:
    """One of the two builds."""

    workspace: Path
    store: Store

    def outputs(self, recipe: str) -> dict[str, dict[str, str]]:
        """Stage -> file -> sha256."""
        record = json.loads((self.workspace / "artifacts/.modelbuild/builds" / f"{recipe}.json").read_bytes())
        return {stage: dict(value["files"]) for stage, value in record["stages"].items()}


def build_twice(session: Session, sets: Iterable[str], keep: Path) -> list[Verdict]:
    """Build the session's recipes twice up to their packages; what was fetched here is not fetched again.

    Packages that differ are kept below `keep`/RECIPE. Raises StageError where one of the builds fails.
    """
    clock = fake_clock([str(resolved.target["kind"]) for resolved in session.loaded.values()])
    with session.store.scratch() as scratch:
        twins = [_build(session, sets, surroundings, scratch / surroundings.name, clock) for surroundings in BOTH]
        return [_compare(recipe, twins, keep / recipe, varied(clock)) for recipe in session.loaded]


def _build(session: Session, sets: Iterable[str], surroundings: Surroundings, base: Path, clock: Mapping[str, str]) -> Twin:
    workspace = session.workspace
    copy = base / surroundings.folder
    (base / "home").mkdir(parents=True)
    copy_workspace(workspace.root, (workspace.artifacts, workspace.store), copy)
    store = Store(base / "store")
    _seed(session, store)
    arguments = ["build", *session.loaded, "--stages", "package"]
    arguments += [word for text in sets for word in ("--set", text)]
    done = subprocess.run(
        command(surroundings, arguments), cwd=copy, env=environment(surroundings, base, workspace.root, clock),
        umask=surroundings.umask, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        said = [line for line in done.stdout.splitlines() if " failed: " in line] or done.stderr.strip().splitlines()[-1:]
        raise StageError(f"the {surroundings.name} of the two builds: {' '.join(said)}; build it without the check")
    return Twin(copy, store)


def _seed(session: Session, store: Store) -> None:
    """Give a twin's store what the fetch stage brought here."""
    for recipe in session.loaded:
        result = session.examine(recipe, "fetch")
        entry = session.store.lookup(result.key) if result is not None and result.key is not None else None
        if entry is None:
            continue
        path = store.entry_path(entry.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(session.store.entry_path(entry.key), path)
        for blob in entry.outputs.values():
            link = store.blob_path(blob.sha256)
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.symlink_to(session.store.blob_path(blob.sha256))


def _compare(recipe: str, twins: Sequence[Twin], keep: Path, surroundings: str) -> Verdict:
    first, second = (twin.outputs(recipe) for twin in twins)
    shutil.rmtree(keep, ignore_errors=True)
    one, two = first.get("package", {}), second.get("package", {})
    differing: dict[str, Sequence[str]] = {}
    for name in sorted({*one, *two}):
        if one.get(name) != two.get(name):
            pair = [_kept(twin, outputs, name, keep) for twin, outputs in zip(twins, (one, two), strict=True)]
            differing[name] = differences(*pair) if None not in pair else ["only one of the builds has it"]
    return Verdict(recipe, one, differing, _first_difference(first, second), surroundings)


def _kept(twin: Twin, outputs: Mapping[str, str], name: str, keep: Path) -> Any:
    if name not in outputs:
        return None
    target = keep / twin.store.root.parent.name / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(twin.store.blob_path(outputs[name]), target)
    return target


def _first_difference(first: Mapping[str, Mapping[str, str]], second: Mapping[str, Mapping[str, str]]) -> str:
    for stage in ORDER:
        one, two = first.get(stage, {}), second.get(stage, {})
        names = sorted(name for name in {*one, *two} if one.get(name) != two.get(name))
        if names:
            return f"{stage} ({', '.join(names)})"
    return ""
