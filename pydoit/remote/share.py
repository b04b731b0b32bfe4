"""What `doit cache push` and `doit cache pull` do: the last builds' entries to the remote, and recipes' entries from it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydoit.builder import READ_IN_PLACE
from pydoit.errors import UserError
from pydoit.remote.cache import Moved, RemoteCache
from pydoit.results import GOOD
from pydoit.session import Options, Session
from pydoit.workspace import Workspace

PATIENCE = 6.0
"""Somebody asked for it and waits: requests may take this many times longer than in a build."""


def push(workspace: Workspace, names: list[str]) -> dict[str, Any]:
    """Send what the remote lacks of the last builds of the recipes, by default of all that were built here."""
    session, remote = _open(workspace)
    if workspace.remote.url.startswith("http"):
        raise UserError("an HTTP remote is read-only; push to file://, s3://, gs://, az:// or abfs://")
    recipes = names or session.history.recipes()
    recorded = {name: key for recipe in recipes for name, key in _recorded(session, recipe).items()}
    with session.store.in_use():
        found = {name: session.store.lookup(key) for name, key in recorded.items()}
        moved = remote.push(entry for entry in found.values() if entry is not None)
    return _facts(remote, "sent", moved, not_here=[name for name, entry in found.items() if entry is None])


def pull(workspace: Workspace, names: list[str]) -> dict[str, Any]:
    """Bring the entries of the recipes, by default those of the workspace, as far as the remote has them."""
    session, remote = _open(workspace)
    recipes = names or list(workspace.settings.default)
    if not recipes:
        raise UserError("nothing to pull; name a recipe, or list some as `default = [...]` in modelbuild.toml")
    session.open(recipes)
    for error in session.broken.values():
        raise error
    lacking = []
    with session.store.in_use():
        for recipe in session.loaded:
            lacking += [f"{recipe}:{stage}" for stage in session.stages(recipe) if not _brought(session, remote, recipe, stage)]
    return _facts(remote, "fetched", remote.fetched, not_there=lacking)


def _brought(session: Session, remote: RemoteCache, recipe: str, stage: str) -> bool:
    result = session.examine(recipe, stage)
    if result is None or result.status != "restored":
        return result is not None and result.is_good
    with session.store.key_lock(str(result.key)):
        return remote.fetch(str(result.key)) is not None


def _open(workspace: Workspace) -> tuple[Session, RemoteCache]:
    session = Session(workspace, Options(patience=PATIENCE))
    if session.remote is None:
        raise UserError("no remote cache is configured; set `remote` under [cache] in modelbuild.toml, or MODELBUILD_REMOTE")
    return session, session.remote


def _recorded(session: Session, recipe: str) -> dict[str, str]:
    """recipe:stage -> key of the recipe's last build; `UserError` where there was none."""
    stages = session.history.stages(recipe)
    if not stages:
        session.workspace.recipe_file(recipe.partition("@")[0])
        raise UserError(f"{recipe} was not built here yet; run `doit build {recipe}`")
    return {
        f"{recipe}:{name}": stage["key"]
        for name, stage in stages.items()
        if stage["status"] in GOOD and stage["reason"] != READ_IN_PLACE
    }


def _facts(remote: RemoteCache, verb: str, moved: Moved, **lacking: list[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {f"{verb}_{name}": value for name, value in asdict(moved).items()}
    facts |= {where: ", ".join(names) for where, names in lacking.items() if names}
    return {**facts, "fault": remote.requests.reason} if remote.requests.is_off else facts
