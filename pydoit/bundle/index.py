"""The index of a bundle: what it holds and for which recipes, signed as a whole; the first member of the archive."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pydoit.errors import UserError
from pydoit.keys import canonical
from pydoit.remote.signing import Trust
from pydoit.stages import ORDER
from pydoit.store import blob_name, entry_name
from pydoit.workspace import NAME

SCHEMA = 1
MEMBER = "bundle.json"
CONTEXT = b"doit-modelbuild bundle 1\n"
MAX_BYTES = 64 * 2**20
MAX_MEMBERS = 200_000
WORKSPACE = "workspace/"
KINDS = ("build", "results")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True)
class Member:
    """One file of the archive."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class PackedStage:
    """A stage whose entry is in the bundle."""

    key: str
    is_carried: bool
    """Whether it need not run again; if not, only its outputs' digests are told, from which keys follow."""


@dataclass(frozen=True)
class PackedRecipe:
    """One recipe of a bundle."""

    arch: str
    """What the library was compiled for, which `arch = "native"` stood for."""
    stages: Mapping[str, PackedStage]


@dataclass(frozen=True)
class Index:
    """What the archive holds beside the index itself."""

    kind: str
    """build: a workspace's files and the stages done; results: what verify and profile measured."""
    recipes: Mapping[str, PackedRecipe]
    files: Mapping[str, Member]


def seal(index: Index, trust: Trust) -> bytes:
    """The index as it stands in the archive, signed where there is a key."""
    value = _encode(index)
    signature = trust.sign(CONTEXT + canonical(value)) if trust.can_sign else None
    return canonical({"schema": SCHEMA, "index": value, "signature": signature})


def unseal(data: bytes, trust: Trust, *, unsigned: bool) -> Index:
    """The index of a trusted bundle, or of any when the user takes `unsigned` ones; `UserError` for all others."""
    try:
        value = json.loads(data)
        found, signature, schema = value["index"], value["signature"], value["schema"]
        signed = CONTEXT + canonical(found)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{MEMBER}: not an index of a bundle; pack it again") from None
    if schema != SCHEMA:
        raise UserError(f"{MEMBER}: schema {schema!r}, this version reads {SCHEMA}; unpack with the version that packed it")
    if not unsigned and not (signature is not None and trust.is_trusted(signature, signed)):
        what = "is not signed" if signature is None else "is signed by a key that is not trusted here"
        raise UserError(
            f"the bundle {what}; name its public key with --key, list it in trusted_keys, set MODELBUILD_CACHE_SECRET, "
            "or take it as it is with --unsigned: its recipes run code"
        )
    try:
        return _decode(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{MEMBER}: damaged ({error}); pack it again") from None


def _encode(index: Index) -> dict[str, Any]:
    recipes = {
        name: {
            "arch": recipe.arch,
            "stages": {stage: {"key": item.key, "carried": item.is_carried} for stage, item in recipe.stages.items()},
        }
        for name, recipe in index.recipes.items()
    }
    files = {name: {"sha256": member.sha256, "bytes": member.bytes} for name, member in index.files.items()}
    return {"kind": index.kind, "recipes": recipes, "files": files}


def _decode(value: Any) -> Index:
    if value["kind"] not in KINDS:
        raise ValueError(f"kind {value['kind']!r}")
    files = {}
    for name, item in value["files"].items():
        if (
            not is_member_name(name)
            or not _SHA256.fullmatch(item["sha256"])
            or type(item["bytes"]) is not int
            or item["bytes"] < 0
        ):
            raise ValueError(f"member {name!r}")
        if name.startswith("blobs/") and name != blob_name(item["sha256"]):
            raise ValueError(f"member {name!r} has another digest")
        files[name] = Member(item["sha256"], item["bytes"])
    return Index(value["kind"], {name: _recipe(name, item, files) for name, item in value["recipes"].items()}, files)


def _recipe(name: str, value: Any, files: Mapping[str, Member]) -> PackedRecipe:
    if not all(NAME.fullmatch(part) for part in name.split("@", 1)):
        raise ValueError(f"recipe {name!r}")
    stages = {}
    for stage, item in value["stages"].items():
        key, carried = item["key"], item["carried"]
        if stage not in ORDER or not _SHA256.fullmatch(key) or type(carried) is not bool or entry_name(key) not in files:
            raise ValueError(f"stage {stage!r} of {name}")
        stages[stage] = PackedStage(key, carried)
    return PackedRecipe(str(value["arch"]), stages)


def is_member_name(name: str) -> bool:
    """Whether a name of the archive is one of ours: relative, spelled in one way, in a folder that bundles have."""
    if _CONTROL.search(name) or len(name) > 1000 or PurePosixPath(name).as_posix() != name:
        return False
    parts = PurePosixPath(name).parts
    if ".." in parts or ".git" in parts or name.startswith("/"):
        return False
    if parts[0] in ("blobs", "actions"):
        return len(parts) == 3 and parts[2].partition(".")[0][:2] == parts[1] and _is_stored(name)
    return len(parts) > 1 and parts[0] == WORKSPACE.rstrip("/")


def _is_stored(name: str) -> bool:
    last = name.rpartition("/")[2].removesuffix(".json")
    return _SHA256.fullmatch(last) is not None and name in (blob_name(last), entry_name(last))
