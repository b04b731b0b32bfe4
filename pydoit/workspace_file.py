"""What modelbuild.toml may say; the typed form, loaded only when the quick look at the file does not suffice."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from pydoit.frozen import Frozen


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
