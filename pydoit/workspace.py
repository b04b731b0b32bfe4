"""The workspace: modelbuild.toml, the recipes by name, and where outputs and the store lie."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError

from pydoit.errors import RecipeError, UserError
from pydoit.frozen import Frozen
from pydoit.loading import Layer, nearest, read_table
from pydoit.validation import faults_of

FILE_NAME = "modelbuild.toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Cache(Frozen):
    """[cache]: the store that workspaces share."""

    path: str | None = None
    """Folder of the store; the user's cache folder when left out. MODELBUILD_CACHE in the environment wins."""
    max_size: Annotated[str, Field(pattern=r"^\d+(\.\d+)?(MB|GB|TB)$")] = "50GB"
    """Size to which `doit cache gc` shrinks the store."""


class WorkspaceFile(Frozen):
    """modelbuild.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, protected_namespaces=())
    schema_: Literal[1] = Field(alias="schema")
    """Version of the format; 1."""
    default: tuple[str, ...] = ()
    """Recipes that `doit build` without names builds."""
    recipes: str = "recipes"
    """Folder of the recipes; its base/ folder holds fragments."""
    artifacts: str = "artifacts"
    """Folder of the outputs."""
    cache: Cache = Field(default_factory=lambda: Cache())
    """The store."""


@dataclass(frozen=True)
class Workspace:
    """An opened workspace; paths are absolute."""

    root: Path
    settings: WorkspaceFile

    @property
    def recipes(self) -> Path:
        return self.root / self.settings.recipes

    @property
    def artifacts(self) -> Path:
        return self.root / self.settings.artifacts

    @property
    def state(self) -> Path:
        """Disposable state: doit's database, logs, the last build of each recipe."""
        return self.artifacts / ".modelbuild"

    @property
    def store(self) -> Path:
        """Folder of the content-addressed store."""
        chosen = os.environ.get("MODELBUILD_CACHE") or self.settings.cache.path
        if chosen:
            return (self.root / Path(chosen).expanduser()).resolve()
        from platformdirs import user_cache_path

        return user_cache_path("doit-modelbuild")

    @cached_property
    def recipe_files(self) -> dict[str, list[Path]]:
        """Recipe files by name; a name with several files is an error once it is used."""
        found: dict[str, list[Path]] = {}
        for path in sorted(self.recipes.rglob("*.toml")):
            if "base" not in path.relative_to(self.recipes).parts[:-1]:
                found.setdefault(path.stem, []).append(path)
        return found

    def recipe_file(self, name: str) -> Path:
        """The file of recipe `name`; `UserError` when there is none, several, or the name cannot be addressed."""
        files = self.recipe_files.get(name)
        if not files:
            raise UserError(f"there is no recipe {name!r}; {nearest(name, sorted(self.recipe_files))}")
        label = files[0].relative_to(self.root).as_posix()
        if not NAME.fullmatch(name):
            raise RecipeError(
                f"{label}:1: name: {name!r} cannot be addressed; use letters, digits, '.', '_', '-', first a letter or digit"
            )
        if len(files) > 1:
            others = ", ".join(path.relative_to(self.root).as_posix() for path in files[1:])
            raise RecipeError(f"{label}:1: name: {name!r} is also the name of {others}; rename one of them")
        return files[0]

    def inside(self, path: str) -> Path | None:
        """The absolute path of a workspace-relative one; None where it leaves the workspace.

        A link may lead out only into a folder that the user, not the checkout, allows: MODELBUILD_ROOTS.
        """
        candidate = (self.root / path).resolve()
        allowed = [Path(item) for item in os.environ.get("MODELBUILD_ROOTS", "").split(os.pathsep) if item]
        lexical = os.path.normpath(path)
        if Path(path).is_absolute() or lexical.startswith(".."):
            return None
        roots = [self.root.resolve(), *(item.resolve() for item in allowed)]
        return candidate if any(candidate.is_relative_to(root) for root in roots) else None


def find_root(start: Path) -> Path | None:
    """The nearest folder at or above `start` that holds modelbuild.toml."""
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder
    return None


def open_workspace(start: Path | None = None) -> Workspace:
    """Open the workspace around `start` (default: the current folder); `UserError` when there is none."""
    here = (start or Path.cwd()).resolve()
    root = find_root(here)
    if root is None:
        raise UserError(f"no {FILE_NAME} here or above; run `doit init`, or change into a workspace")
    values, text = read_table(root / FILE_NAME, FILE_NAME)
    try:
        settings = WorkspaceFile.model_validate(values)
    except ValidationError as error:
        raise RecipeError(*faults_of(error, WorkspaceFile, Layer(FILE_NAME, values, text).where)) from None
    for key in ("recipes", "artifacts"):
        relative = getattr(settings, key)
        if not relative or Path(relative).is_absolute() or os.path.normpath(relative).startswith(".."):
            raise RecipeError(f"{FILE_NAME}:1: {key}: {relative!r} leaves the workspace; name a folder inside it")
    return Workspace(root, settings)
