"""What `doit bench` and `doit diff` compare: artifact folders, named by path, by recipe, or by recipe at a git revision."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pydoit.console import Console
from pydoit.errors import StageError, UserError
from pydoit.session import Options, Session
from pydoit.workspace import Workspace, open_workspace

UNMEASURED = ("verify", "profile")
"""Stages that the other stages' output does not hang on."""


@dataclass(frozen=True)
class Side:
    """An artifact to compare."""

    label: str
    folder: Path
    recipe: str = ""
    """Its address where it was built from one."""
    session: Session | None = None
    """The session that built it, whose results are open as long as the side is."""


@contextmanager
def open_side(workspace: Workspace, name: str, console: Console) -> Iterator[Side]:
    """The artifact that `name` stands for: a folder with manifest.json, a recipe, or RECIPE:REVISION of this repository.

    Recipes are brought up to date first, without verification and profile; those of a revision in a checkout of their own
    that lies outside the workspace and goes when the context ends.
    """
    folder = Path(name)
    if (folder / "manifest.json").is_file():
        yield Side(name, folder.resolve())
        return
    recipe, colon, revision = name.partition(":")
    if not colon:
        yield _built(workspace, name, recipe, console)
        return
    with _checkout(workspace.root, revision) as root:
        yield _built(open_workspace(root), name, recipe, console)


def _built(workspace: Workspace, label: str, recipe: str, console: Console) -> Side:
    """The artifact of a recipe, brought up to date. Raises what its recipe or a stage raises."""
    workspace.make_state()
    session = Session(workspace, Options())
    session.open([recipe])
    for error in session.broken.values():
        raise error
    with session.store.in_use():
        for stage in session.stages(recipe):
            if stage in UNMEASURED:
                continue
            console.started(recipe, stage)
            result = session.build(recipe, stage, partial(console.running, recipe, stage))
            if result.status in ("failed", "skipped") or (stage == "package" and not result.is_good):
                raise StageError(f"{recipe}: {stage} {result.status}: {result.reason}")
    return Side(label, workspace.artifacts / recipe, recipe, session)


@contextmanager
def _checkout(root: Path, revision: str) -> Iterator[Path]:
    """The workspace as it is at a revision."""
    top = _git(root, "rev-parse", "--show-toplevel")
    commit = _git(root, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    with TemporaryDirectory() as name:
        tree = Path(name) / "checkout"
        _git(root, "worktree", "add", "--detach", str(tree), commit)
        try:
            yield tree / root.resolve().relative_to(Path(top).resolve())
        finally:
            _git(root, "worktree", "remove", "--force", str(tree))


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError("git is not installed, which RECIPE:REVISION needs; install it, or give a folder") from None
    if done.returncode:
        raise UserError(f"git {arguments[0]}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}")
    return done.stdout.strip()
