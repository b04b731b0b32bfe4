"""Unpacks a bundle: when all of it is checked, blobs and entries go to the store and files to the workspace."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydoit.bundle.archive import Archive
from pydoit.bundle.index import WORKSPACE, Index, unseal
from pydoit.digest import hash_file
from pydoit.errors import RecipeError, UserError
from pydoit.loading import read_text_table
from pydoit.remote.signing import Trust, read_trust
from pydoit.settings import FILE_NAME, read_settings
from pydoit.store import Blob, Entry, Store, decode_entry, entry_name, store_error
from pydoit.workspace import Workspace, open_workspace


@dataclass(frozen=True)
class Unpacked:
    """What a bundle brought."""

    workspace: Workspace
    index: Index
    entries: dict[str, Entry]
    """By action key."""
    written: list[str] = field(default_factory=list)
    """Files of the workspace that were not there before, or were replaced."""


def unpack(path: Path, root: Path, keys: Iterable[str], *, unsigned: bool, overwrite: bool) -> Unpacked:
    """Bring a bundle into the workspace at `root` and its store; a fault of the bundle is a UserError before anything changes.

    Whose bundles are taken, the workspace that is there says, with `keys` and the environment; never the bundle itself.
    """
    here = open_workspace(root) if (root / FILE_NAME).is_file() else None
    trusted = here.remote.trusted_keys if here is not None else ()
    trust = read_trust((*trusted, *keys))
    with Archive(path) as archive:
        index = unseal(archive.index(), trust, unsigned=unsigned)
        archive.expect(index.files)
        workspace = here or _new_workspace(archive, index, root)
        entries = _read_entries(archive, index, trust, unsigned=unsigned)
        wanted = _differing(workspace, index, is_new=here is None)
        if not overwrite:
            _refuse_replacing(workspace, wanted)
        store = Store(workspace.store)
        with store.in_use(), store.scratch() as folder:
            _bring_blobs(archive, index, store, folder)
            for name in wanted:
                target = folder / WORKSPACE / name
                target.parent.mkdir(parents=True, exist_ok=True)
                archive.extract(WORKSPACE + name, target)
                if hash_file(target) != index.files[WORKSPACE + name].sha256:
                    raise UserError(f"{path.name}: {name} has other bytes than the index says; pack or download it again")
            for entry in entries.values():
                if all(store.holds(blob) for blob in entry.outputs.values()):
                    store.write_entry(entry)
            for name in wanted:
                _place(folder / WORKSPACE / name, workspace.root / name)
    return Unpacked(workspace, index, entries, wanted)


def _new_workspace(archive: Archive, index: Index, root: Path) -> Workspace:
    """The workspace that the bundle's modelbuild.toml describes; nothing of it is written yet."""
    name = WORKSPACE + FILE_NAME
    if name not in index.files:
        raise UserError(f"{root}: no workspace; unpack results where their recipe is, with --into FOLDER")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UserError(f"{root}: neither a workspace nor an empty folder; choose another one with --into FOLDER")
    values, text = read_text_table(archive.read(name, index.files[name]), FILE_NAME)
    return Workspace(root, read_settings(values, text))


def _read_entries(archive: Archive, index: Index, trust: Trust, *, unsigned: bool) -> dict[str, Entry]:
    entries = {}
    for recipe in index.recipes.values():
        for stage, packed in recipe.stages.items():
            name = entry_name(packed.key)
            data = archive.read(name, index.files[name])
            try:
                value: Any = json.loads(data)["entry"] if unsigned else trust.unseal(data)
                entry = decode_entry(packed.key, value)
                if entry.stage != stage:
                    raise ValueError("of another stage")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise UserError(f"{archive.path.name}: {name} is no entry that a trusted key signed; pack it again") from None
            entries[packed.key] = entry
    return entries


def _differing(workspace: Workspace, index: Index, *, is_new: bool) -> list[str]:
    """Files of the bundle that the workspace lacks or has otherwise; its modelbuild.toml stays its own."""
    wanted = []
    for member, expected in index.files.items():
        name = member.removeprefix(WORKSPACE)
        if name == member or (name == FILE_NAME and not is_new):
            continue
        path = workspace.inside(name)
        if path is None or path.is_dir() or path.is_relative_to(workspace.artifacts.resolve()):
            raise UserError(f"{name!r} leaves the workspace, or is a folder or an output there; refuse the bundle")
        is_same = path.is_file() and path.stat().st_size == expected.bytes and hash_file(path) == expected.sha256
        if not is_same:
            wanted.append(name)
    return wanted


def _refuse_replacing(workspace: Workspace, wanted: list[str]) -> None:
    others = [name for name in wanted if (workspace.root / name).exists()]
    if others:
        shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        raise UserError(
            f"{shown}: here otherwise than in the bundle; --overwrite takes the bundle's, --into FOLDER another place"
        )


def _bring_blobs(archive: Archive, index: Index, store: Store, folder: Path) -> None:
    for name, member in index.files.items():
        blob = Blob(member.sha256, member.bytes)
        if not name.startswith("blobs/") or store.holds(blob):
            continue
        try:
            archive.extract(name, folder / member.sha256)
            if not store.adopt(folder / member.sha256, blob):
                raise UserError(f"{archive.path.name}: {name} has other bytes than its digest says; pack or download it again")
        except OSError as error:
            raise store_error(error, store.root) from error


def _place(source: Path, target: Path) -> None:
    """Move a file, perhaps from another file system, so that readers see it whole or not at all."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise RecipeError(f"{target}: {error.strerror}; correct its rights or free space") from error
    finally:
        temporary.unlink(missing_ok=True)
