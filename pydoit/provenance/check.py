"""Checks an artifact folder against its own documents, offline: every file, its provenance, its signature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydoit.digest import hash_file
from pydoit.errors import UserError
from pydoit.keys import parse_json
from pydoit.provenance.signing import is_signed
from pydoit.provenance.statement import PREDICATE
from pydoit.provenance.statement import STATEMENT as STATEMENT_TYPE
from pydoit.publish import ENVELOPE, MANIFEST, MATERIALS, REPORTS, STATEMENT


def artifact_faults(folder: Path, key: Path | None) -> Iterator[str]:
    """A line for each thing that is wrong; UserError where the folder is no artifact with provenance."""
    manifest, statement = _read(folder, MANIFEST), _read(folder, STATEMENT)
    if statement.get("_type") != STATEMENT_TYPE or statement.get("predicateType") != PREDICATE:
        yield f"{STATEMENT}: not an in-toto statement of SLSA provenance"
        return
    stated = _subjects(statement)
    yield from _file_faults(folder, stated)
    yield from _manifest_faults(manifest, stated)
    if _read(folder, MATERIALS).get("bomFormat") != "CycloneDX":
        yield f"{MATERIALS}: not a CycloneDX document"
    if key is not None:
        if not (folder / ENVELOPE).is_file():
            yield f"{ENVELOPE}: missing; the artifact is not signed"
        elif not is_signed(_read(folder, ENVELOPE), (folder / STATEMENT).read_bytes(), key):
            yield f"{ENVELOPE}: not a signature of {STATEMENT} by this key"


def summary(folder: Path) -> str:
    """What a good artifact is, in a line."""
    definition = _read(folder, STATEMENT)["predicate"]["buildDefinition"]
    count = len(definition["resolvedDependencies"])
    return f"{definition['externalParameters']['recipe']}: {count} sources and tools are named in {STATEMENT}"


def _file_faults(folder: Path, stated: Mapping[str, str]) -> Iterator[str]:
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    for name in sorted(stated):
        if name not in present:
            yield f"{name}: missing"
        elif hash_file(folder / name) != stated[name]:
            yield f"{name}: sha256 is {hash_file(folder / name)[:12]}, stated is {stated[name][:12]}"
    for name in sorted(present - stated.keys() - REPORTS):
        yield f"{name}: not part of the artifact"


def _manifest_faults(manifest: Mapping[str, Any], stated: Mapping[str, str]) -> Iterator[str]:
    for item in [manifest.get("library") or {}, *(manifest.get("libraries") or []), *(manifest.get("weights") or [])]:
        name = str(item.get("path"))
        if stated.get(name) != item.get("sha256"):
            yield f"{MANIFEST}: names another {name} than {STATEMENT}"


def _subjects(statement: Mapping[str, Any]) -> dict[str, str]:
    try:
        return {str(item["name"]): str(item["digest"]["sha256"]) for item in statement["subject"]}
    except (KeyError, TypeError):
        return {}


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        value = parse_json((folder / name).read_bytes())
    except OSError as error:
        raise UserError(f"{folder / name}: {error.strerror}; name the folder of a built artifact") from None
    except ValueError:
        raise UserError(f"{folder / name}: not JSON; build or download the artifact again") from None
    if not isinstance(value, dict):
        raise UserError(f"{folder / name}: not a JSON object; build or download the artifact again")
    return value
