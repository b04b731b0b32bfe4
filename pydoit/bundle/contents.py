"""What belongs into a bundle: entries of the stages done, the blobs that are still read, and the files of the workspace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydoit import sources
from pydoit.bundle.index import WORKSPACE, Member, PackedRecipe, PackedStage, is_member_name
from pydoit.code import CodeDigests, with_packages
from pydoit.digest import files_below, hash_bytes
from pydoit.errors import UserError
from pydoit.keys import canonical
from pydoit.lockfile.file import FILE_NAME as LOCK_FILE
from pydoit.nodes import Node, select
from pydoit.remote.signing import SCHEMA, Trust
from pydoit.resolve import read_document
from pydoit.session import Session
from pydoit.settings import FILE_NAME
from pydoit.stages import ORDER
from pydoit.store import Entry, blob_name, encode_entry, entry_name

MEASURED = ("verify", "profile")
READERS = (*MEASURED, "package")
"""Stages that may have to run where the bundle goes to."""


@dataclass
class Contents:
    """The members of the archive while they are gathered."""

    trust: Trust
    recipes: dict[str, PackedRecipe] = field(default_factory=dict)
    files: dict[str, Member] = field(default_factory=dict)
    sources: dict[str, Path | bytes] = field(default_factory=dict)

    def add_entry(self, entry: Entry) -> None:
        value = encode_entry(entry)
        signed = self.trust.can_sign
        data = self.trust.seal(value) if signed else canonical({"schema": SCHEMA, "entry": value, "signature": None})
        self._add(entry_name(entry.key), Member(hash_bytes(data), len(data)), data)

    def add_blobs(self, session: Session, entry: Entry, names: Iterable[str]) -> None:
        for blob in (entry.outputs[name] for name in names):
            self._add(blob_name(blob.sha256), Member(blob.sha256, blob.bytes), session.store.blob_path(blob.sha256))

    def add_file(self, session: Session, name: str, path: Path) -> None:
        """A file of the workspace under its name there."""
        if not is_member_name(WORKSPACE + name):
            raise UserError(f"{name!r} cannot be packed; rename the file")
        self._add(WORKSPACE + name, Member(session.store.stats.digest(path), path.stat().st_size), path)

    def _add(self, name: str, member: Member, source: Path | bytes) -> None:
        self.files[name], self.sources[name] = member, source


def add_build(contents: Contents, session: Session, recipe: str, *, weights: bool) -> None:
    """The stages before verify and profile that are done, and what those read. `UserError` where nothing is compiled."""
    nodes = session.loaded[recipe].nodes
    entries = dict(_entries(session, recipe, [stage for stage in session.stages(recipe) if stage not in MEASURED]))
    if "compile" not in entries:
        raise UserError(f"{recipe} is not compiled here; run `doit build {recipe}` first (or `doit cache pull {recipe}`)")
    carried = {stage: entry for stage, entry in entries.items() if weights or not _holds_weights(entry)}
    for stage, entry in entries.items():
        contents.add_entry(entry)
        if stage in carried:
            contents.add_blobs(session, entry, _still_read(stage, entry, nodes, carried))
    packed = {stage: PackedStage(entry.key, stage in carried) for stage, entry in entries.items()}
    contents.recipes[recipe] = PackedRecipe(str(session.loaded[recipe].target["arch"]), packed)
    for name, path in workspace_files(session, recipe, weights=weights).items():
        contents.add_file(session, name, path)


def add_results(contents: Contents, session: Session, recipe: str) -> None:
    """What verify and profile measured. `UserError` where neither is there."""
    entries = dict(_entries(session, recipe, MEASURED))
    if not entries:
        raise UserError(f"{recipe} has no results here; run `doit build {recipe} --stages verify,profile`")
    for entry in entries.values():
        contents.add_entry(entry)
        contents.add_blobs(session, entry, entry.outputs)
    packed = {stage: PackedStage(entry.key, is_carried=True) for stage, entry in entries.items()}
    contents.recipes[recipe] = PackedRecipe(str(session.loaded[recipe].target["arch"]), packed)


def _entries(session: Session, recipe: str, stages: Iterable[str]) -> Iterator[tuple[str, Entry]]:
    """Entries of the stages that are done; a package without its deferred parts is none."""
    for stage in stages:
        result = session.examine(recipe, stage)
        if result is None or not result.is_good or session.builder.is_partial(session.node(recipe, stage)):
            continue
        entry = session.store.lookup(str(result.key))
        if entry is not None:
            yield stage, entry


def _holds_weights(entry: Entry) -> bool:
    return entry.stage == "fetch" or any(name.endswith(".safetensors") for name in entry.outputs)


def _still_read(stage: str, entry: Entry, nodes: Mapping[str, Node], carried: Mapping[str, Entry]) -> set[str]:
    """The output files that a stage may read which is not done, or not where the bundle goes to; all of a package."""
    if stage == "package":
        return set(entry.outputs)
    readers = [nodes[name] for name in ORDER if name in nodes and (name in READERS or name not in carried)]
    return {name for node in readers for name in select(entry.outputs, node.reads.get(stage, ()))}


def workspace_files(session: Session, recipe: str, *, weights: bool) -> dict[str, Path]:
    """Name -> path of what the recipe is read from: its files and those it extends, the model, records, modules, the lock."""
    workspace, resolved = session.workspace, session.loaded[recipe]
    root = workspace.root
    names = {layer.label for layer in read_document(workspace, recipe).layers}
    names |= {name for name in (FILE_NAME, LOCK_FILE) if (root / name).is_file()}
    names |= {name for name in _named(resolved.values) if (root / name).is_file()}
    digests = CodeDigests(root)
    for module in {module for node in resolved.nodes.values() for module in node.modules}:
        names |= with_packages(root, digests.digest(module))
    files = {name: root / name for name in names}
    model = resolved.values["model"].get("path")
    if weights and model is not None and sources.is_local(model):
        below = files_below(root / model, f"model {model!r}")
        is_file = (root / model).is_file()
        files |= {Path(model).as_posix() if is_file else (Path(model) / name).as_posix(): path for name, path in below.items()}
    return files


def _named(values: Mapping[str, Any]) -> Iterator[str]:
    """Paths of the workspace that a checked recipe names, but for the model's."""
    verify = values.get("verify", {})
    named = (values["model"].get("config"), values.get("tune", {}).get("records"), verify.get("dataset"),
             verify.get("language", {}).get("text"), values.get("quantization", {}).get("calibration"))  # fmt: skip
    yield from (Path(name).as_posix() for name in named if name and ":" not in name)
