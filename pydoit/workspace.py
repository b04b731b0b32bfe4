"""The workspace: modelbuild.toml, the recipes by name, and where outputs and the store lie."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydoit.errors import ModelBuildError, RecipeError, StoreError, UserError
from pydoit.loading import read_table
from pydoit.nearest import nearest
from pydoit.settings import FILE_NAME, ExecutorSettings, RemoteSettings, Settings, read_settings, tracker_of, with_environment

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Workspace:
    """An opened workspace; paths are absolute."""

    root: Path
    settings: Settings

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

    def make_state(self) -> None:
        """Make the state folder; `StoreError` where that cannot be done."""
        try:
            self.state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.state}: {error.strerror}; correct what stands there, or its rights") from error

    @property
    def store(self) -> Path:
        """Folder of the content-addressed store."""
        chosen = os.environ.get("MODELBUILD_CACHE") or self.settings.cache_path
        if chosen:
            return (self.root / Path(chosen).expanduser()).resolve()
        from platformdirs import user_cache_path

        return user_cache_path("doit-modelbuild")

    @property
    def remote(self) -> RemoteSettings:
        """The remote cache; what the environment says wins. `UserError` for what it cannot say."""
        return with_environment(self.settings.remote)

    @property
    def executor(self) -> ExecutorSettings:
        """Where stages run and candidates are measured; what the environment says wins. `UserError` for what it cannot say."""
        return tracker_of(self.settings.executor)

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
        if not self.holds(files[0].resolve()):
            raise RecipeError(f"{label}:1: file: a link leads out of the workspace; allow its folder with MODELBUILD_ROOTS")
        if len(files) > 1:
            others = ", ".join(path.relative_to(self.root).as_posix() for path in files[1:])
            raise RecipeError(f"{label}:1: name: {name!r} is also the name of {others}; rename one of them")
        return files[0]

    def inside(self, path: str) -> Path | None:
        """The absolute path of a workspace-relative one; None where it leaves the workspace.

        A link may lead out only into a folder that the user, not the checkout, allows: MODELBUILD_ROOTS.
        """
        candidate = (self.root / path).resolve()
        lexical = os.path.normpath(path)
        if Path(path).is_absolute() or lexical.startswith(".."):
            return None
        return candidate if self.holds(candidate) else None

    def holds(self, path: Path) -> bool:
        """Whether a resolved path lies in the workspace, or in a folder that MODELBUILD_ROOTS allows."""
        allowed = [Path(item) for item in os.environ.get("MODELBUILD_ROOTS", "").split(os.pathsep) if item]
        return any(path.is_relative_to(root.resolve()) for root in (self.root, *allowed))


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
    settings = read_settings(values, text)
    for key in ("recipes", "artifacts"):
        relative = getattr(settings, key)
        if not relative or Path(relative).is_absolute() or os.path.normpath(relative).startswith(".."):
            raise RecipeError(f"{FILE_NAME}:1: {key}: {relative!r} leaves the workspace; name a folder inside it")
    workspace = Workspace(root, settings)
    for key in ("recipes", "artifacts"):
        if workspace.inside(getattr(settings, key)) is None:
            raise RecipeError(
                f"{FILE_NAME}:1: {key}: a link leads out of the workspace; allow its folder with MODELBUILD_ROOTS"
            )
    return workspace


def variants(workspace: Workspace, name: str) -> list[str]:
    """`NAME@VARIANT` of each variant that the recipe's own file declares; none for a file that cannot be read."""
    try:
        table, _ = read_table(workspace.recipe_file(name), name)
    except ModelBuildError:
        return []
    declared = table.get("variant", {})
    return [f"{name}@{variant}" for variant in declared] if isinstance(declared, dict) else []


def all_addresses(workspace: Workspace) -> list[str]:
    """All recipes with their variants, by name."""
    return [address for name in sorted(workspace.recipe_files) for address in (name, *variants(workspace, name))]
