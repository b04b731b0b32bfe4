"""Reads and writes modelbuild.lock: TOML in a stable order, a value a line, so that it reviews and merges well."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.errors import RecipeError, UserError
from pydoit.history import write_atomically
from pydoit.loading import Layer, read_table
from pydoit.lockfile.entry import Artifact, Entry
from pydoit.toml_lines import KeyPath

FILE_NAME = "modelbuild.lock"
SCHEMA = 1
MAX_BYTES = 20_000_000
HEADER = "# What each recipe is built from and what it gives. Written by `doit lock`; change it by that command only.\n"
TABLES = ("sources", "records", "code", "toolchain", "environment")
KEYS = frozenset({"digest", "arch", "recipe", *TABLES, "artifact"})
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|revision:[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MARKER = re.compile(r"^(<{7}|={7}|>{7})", re.MULTILINE)
RESTORE = "restore the file, or remove it and run `doit lock`"

Lock = dict[str, Entry]


def read_lock(root: Path) -> Lock | None:
    """Recipe's address -> entry; None without a lock file. Raises RecipeError for a damaged one or another schema."""
    path = root / FILE_NAME
    if not path.exists():
        return None
    _refuse_conflict(path)
    values, text = read_table(path, FILE_NAME, MAX_BYTES)
    layer = Layer(FILE_NAME, values, text)
    if values.get("schema") != SCHEMA or isinstance(values.get("schema"), bool):
        found = values.get("schema", "missing")
        raise _fault(
            layer, ("schema",), f"is {found}, this version reads {SCHEMA}; use the version that wrote it, or {RESTORE}"
        )
    for key in values:
        if key not in ("schema", "build"):
            raise _fault(layer, (key,), f"is unknown; {RESTORE}")
    builds = _table(layer, ("build",), values.get("build", {}))
    return {name: _entry(layer, name, _table(layer, ("build", name), value)) for name, value in builds.items()}


def require_lock(root: Path) -> Lock:
    """The lock file of a workspace; UserError without one."""
    lock = read_lock(root)
    if lock is None:
        raise UserError(f"there is no {FILE_NAME}; run `doit lock` and check it in")
    return lock


def write_lock(root: Path, lock: Mapping[str, Entry]) -> bool:
    """Write the lock file; whether it changed."""
    data = to_text(lock).encode()
    path = root / FILE_NAME
    if path.is_file() and path.read_bytes() == data:
        return False
    write_atomically(path, data)
    return True


def to_text(lock: Mapping[str, Entry]) -> str:
    """The file's text: recipes and keys sorted, a table a part."""
    import tomlkit

    document: Any = tomlkit.document()
    document["schema"] = SCHEMA
    builds = tomlkit.table(is_super_table=True)
    for name in sorted(lock):
        builds[name] = _encode(lock[name])
    if lock:
        document["build"] = builds
    return HEADER + str(tomlkit.dumps(document))


def _encode(entry: Entry) -> Any:
    import tomlkit

    table = tomlkit.table()
    table["digest"] = f"sha256:{entry.digest}"
    if entry.arch:
        table["arch"] = entry.arch
    table["recipe"] = _dotted(entry.recipe)
    for part in TABLES:
        values = getattr(entry, part)
        if values:
            table[part] = dict(sorted(values.items()))
    if entry.artifact:
        table["artifact"] = files = tomlkit.table()
        for name, file in sorted(entry.artifact.items()):
            files[name] = _inline({"sha256": file.sha256, "bytes": file.bytes})
    return table


def _dotted(values: Mapping[str, Any]) -> Any:
    """A table with a dotted key for each value, sorted."""
    import tomlkit

    table = tomlkit.table()

    def add(path: tuple[str, ...], value: Any) -> None:
        if isinstance(value, Mapping):
            for key in sorted(value):
                add((*path, key), value[key])
        else:
            table.append(tomlkit.key(path), _array(value) if isinstance(value, (list, tuple)) else tomlkit.item(value))

    add((), values)
    return table


def _array(values: Any) -> Any:
    import tomlkit

    array = tomlkit.array()
    for value in values:
        array.append(_inline(value) if isinstance(value, Mapping) else value)
    return array


def _inline(values: Mapping[str, Any]) -> Any:
    import tomlkit

    table = tomlkit.inline_table()
    for key, value in values.items():
        table[key] = _inline(value) if isinstance(value, Mapping) else value
    return table


def _entry(layer: Layer, name: str, values: Mapping[str, Any]) -> Entry:
    at: KeyPath = ("build", name)
    for key in values:
        if key not in KEYS:
            raise _fault(layer, (*at, key), f"is unknown; {RESTORE}")
    tables = {part: _strings(layer, (*at, part), values.get(part, {})) for part in TABLES}
    files = _table(layer, (*at, "artifact"), values.get("artifact", {}))
    artifact = {file: _artifact(layer, (*at, "artifact", file), value) for file, value in files.items()}
    arch = values.get("arch", "")
    if not isinstance(arch, str):
        raise _fault(layer, (*at, "arch"), f"must be a name; {RESTORE}")
    recipe = _table(layer, (*at, "recipe"), values.get("recipe", {}))
    entry = Entry(recipe, arch, **tables, artifact=artifact)
    if values.get("digest") != f"sha256:{entry.digest}":
        raise _fault(layer, (*at, "digest"), f"does not fit the values in [build.{name}.recipe]; {RESTORE}")
    return entry


def _strings(layer: Layer, path: KeyPath, value: Any) -> dict[str, str]:
    table = _table(layer, path, value)
    digests = path[-1] in ("sources", "records", "code")
    for key, item in table.items():
        if not isinstance(item, str):
            raise _fault(layer, (*path, key), f"must be text; {RESTORE}")
        if digests and not _DIGEST.fullmatch(item):
            raise _fault(layer, (*path, key), f"{item!r} is no digest; {RESTORE}")
    return table


def _artifact(layer: Layer, path: KeyPath, value: Any) -> Artifact:
    table = _table(layer, path, value)
    sha256, size = table.get("sha256"), table.get("bytes")
    if set(table) != {"sha256", "bytes"} or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise _fault(layer, path, f"must be {{ sha256 = 64 hex digits, bytes = a number }}; {RESTORE}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise _fault(layer, path, f"bytes = {size!r} is no size; {RESTORE}")
    return Artifact(sha256, size)


def _table(layer: Layer, path: KeyPath, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _fault(layer, path, f"must be a table; {RESTORE}")
    return value


def _refuse_conflict(path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    marker = _MARKER.search(text)
    if marker is not None:
        line = text.count("\n", 0, marker.start()) + 1
        raise RecipeError(f"{FILE_NAME}:{line}: syntax: a merge conflict; take either side and run `doit lock`")


def _fault(layer: Layer, path: KeyPath, message: str) -> RecipeError:
    shown = ".".join(str(part) for part in path)
    return RecipeError(f"{layer.where(path)}: {shown}: {message}")
