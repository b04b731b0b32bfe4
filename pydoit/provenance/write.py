"""Writes provenance beside a published artifact: provenance.json, sbom.json and, with a key, provenance.dsse.json."""

from __future__ import annotations

from pydoit.digest import hash_bytes
from pydoit.history import write_atomically
from pydoit.keys import canonical, pretty
from pydoit.lockfile.observe import observe_inputs
from pydoit.provenance.materials import make_materials
from pydoit.provenance.signing import sign
from pydoit.provenance.statement import make_statement
from pydoit.publish import ENVELOPE, MATERIALS, STATEMENT
from pydoit.results import Result
from pydoit.session import Session
from pydoit.signing_keys import signing_key


def write_provenance(session: Session, recipe: str, package: Result) -> None:
    """Write the documents of a package that is good and published; a stale signature is removed."""
    folder = session.workspace.artifacts / recipe
    entry = observe_inputs(session, recipe)
    materials = pretty(make_materials(recipe, entry))
    files = {name: file.sha256 for name, file in package.files.items()} | {MATERIALS: hash_bytes(materials)}
    statement = pretty(make_statement(recipe, str(package.key), entry, files))
    path, key = folder / STATEMENT, signing_key()
    is_same = path.is_file() and path.read_bytes() == statement
    write_atomically(folder / MATERIALS, materials)
    write_atomically(path, statement)
    if key is not None:
        write_atomically(folder / ENVELOPE, canonical(sign(statement, key)) + b"\n")
    elif not is_same:
        (folder / ENVELOPE).unlink(missing_ok=True)
