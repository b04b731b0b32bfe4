"""Recipe files -> `Recipe`: reading, `extends`, variants, `--set`, and messages that name file, line and key."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli

from pydoit.errors import RecipeError, UserError
from pydoit.nearest import nearest
from pydoit.toml_lines import KeyPath, key_lines

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
Table = dict[str, Any]


@dataclass(frozen=True)
class Layer:
    """One source of values: a file, a variant's table in it, or the command line."""

    label: str
    values: Table
    text: str | None = None
    prefix: KeyPath = ()

    def line(self, path: KeyPath) -> int | None:
        """The line that writes `path`, or its nearest enclosing key; None on the command line."""
        if self.text is None:
            return None
        lines = key_lines(self.text)
        full = (*self.prefix, *path)
        for length in range(len(full), 0, -1):
            if full[:length] in lines:
                return lines[full[:length]]
        return 1

    def where(self, path: KeyPath) -> str:
        line = self.line(path)
        return self.label if line is None else f"{self.label}:{line}"

    def defines(self, path: KeyPath) -> int:
        """How many leading keys of `path` this layer writes itself."""
        node: Any = self.values
        for depth, key in enumerate(path):
            is_item = isinstance(node, list) and isinstance(key, int) and key < len(node)
            if not is_item and not (isinstance(node, dict) and key in node):
                return depth
            node = node[key]
        return len(path)


@dataclass
class Document:
    """The merged values of a recipe and the layers that they come from, weakest first."""

    name: str
    layers: list[Layer] = field(default_factory=list)
    values: Table = field(default_factory=dict)

    def where(self, path: KeyPath) -> str:
        """`file:line` of the strongest layer that writes `path` or most of it."""
        best = max(enumerate(self.layers), key=lambda item: (item[1].defines(path), item[0]))[1]
        return best.where(path)

    def add(self, layer: Layer) -> None:
        self.layers.append(layer)
        self.values = merge(self.values, layer.values)


def merge(base: Table, over: Table) -> Table:
    """Tables merge key by key, everything else is replaced; a pass order replaces a preset and the other way round."""
    merged = dict(base)
    for key, value in over.items():
        current = merged.get(key)
        if isinstance(current, dict) and isinstance(value, dict):
            if key == "passes" and ("order" in value) != ("preset" in value):
                current = {name: item for name, item in current.items() if name not in ("order", "preset")}
            merged[key] = merge(current, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def read_table(path: Path, label: str, max_bytes: int = MAX_BYTES) -> tuple[Table, str]:
    """Parse one TOML file; every fault is a one-line `RecipeError`."""
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise RecipeError(f"{label}:1: file: {size:,} bytes is too large; it may have at most {max_bytes:,}")
        data = path.read_bytes()
    except OSError as error:
        raise RecipeError(f"{label}:1: file: cannot be read ({error.strerror}); check its path and rights") from None
    return read_text_table(data, label)


def read_text_table(data: bytes, label: str) -> tuple[Table, str]:
    """Parse the bytes of a TOML file; every fault is a one-line `RecipeError`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise RecipeError(f"{label}:{line}: file: not UTF-8 text; save the file as UTF-8") from None
    try:
        return tomli.loads(text), text
    except tomli.TOMLDecodeError as error:
        line = getattr(error, "lineno", None) or 1
        reason = str(getattr(error, "msg", error)).rstrip(".")
        raise RecipeError(f"{label}:{line}: syntax: {reason}; correct the TOML") from None
    except RecursionError:
        raise RecipeError(f"{label}:1: syntax: nested too deeply; at most {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise RecipeError(f"{label}:1: syntax: {error}; correct the TOML") from None


def open_document(path: Path, root: Path, variant: str | None, sets: Sequence[str]) -> Document:
    """Read a recipe with all that it extends, then its variant, then the command line's `--set`."""
    document = Document(name=path.stem)
    _add_file(document, path, root, ())
    if not document.layers[-1].values:
        where = document.layers[-1].label
        raise RecipeError(f"{where}:1: file: says nothing; write at least schema = 1 and [model] (`doit init` shows how)")
    own = document.layers[-1]
    variants = document.values.pop("variant", {})
    if variant is not None:
        _add_variant(document, own, variants, variant)
    for assignment in sets:
        document.add(Layer(f"--set {assignment}", _assignment(assignment)))
    document.values["variant"] = variants if isinstance(variants, dict) else {}
    return document


def _add_variant(document: Document, own: Layer, variants: Any, variant: str) -> None:
    known = sorted(variants) if isinstance(variants, dict) else []
    if variant not in known:
        raise UserError(f"{own.label}: there is no variant {variant!r}; {nearest(variant, known)}")
    for layer in list(document.layers):
        table = layer.values.get("variant", {})
        if isinstance(table, dict) and isinstance(table.get(variant), dict):
            document.add(Layer(layer.label, table[variant], layer.text, ("variant", variant)))


def _add_file(document: Document, path: Path, root: Path, above: tuple[Path, ...]) -> None:
    label = _label(path, root)
    values, text = read_table(path, label)
    layer = Layer(label, values, text)
    if _depth(values) > MAX_DEPTH:
        raise RecipeError(f"{label}:1: syntax: nested too deeply; at most {MAX_DEPTH} levels")
    for position, parent in enumerate(_extends(layer)):
        where = layer.where(("extends", position))
        target = (path.parent / parent).resolve()
        if not target.is_relative_to(root.resolve()):
            raise RecipeError(f"{where}: extends: {parent!r} leaves the workspace; keep fragments inside it")
        if target in (*above, path.resolve()):
            chain = " -> ".join(_label(item, root) for item in (*above, path.resolve(), target))
            raise RecipeError(f"{where}: extends: cycle {chain}; remove one of them")
        if not target.is_file():
            raise RecipeError(f"{where}: extends: there is no file {parent!r}; it is relative to this file")
        _add_file(document, target, root, (*above, path.resolve()))
    document.add(layer)
    if not above:
        document.values["extends"] = list(_extends(layer))


def _extends(layer: Layer) -> list[str]:
    value = layer.values.get("extends", [])
    if isinstance(value, list) and all(isinstance(item, str) and item and "\0" not in item for item in value):
        return value
    raise RecipeError(f'{layer.where(("extends",))}: extends: must be a list of file names; write ["base/cpu.toml"]')


def _assignment(text: str) -> Table:
    key, separator, value = text.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts):
        raise UserError(f"--set {text}: not an assignment; write --set section.key=value")
    try:
        parsed = tomli.loads(f"value = {value}")
        item = parsed["value"] if set(parsed) == {"value"} else value
    except tomli.TOMLDecodeError:
        item = value
    table: Table = {parts[-1]: item}
    for part in reversed(parts[:-1]):
        table = {part: table}
    return table


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH + 1:
        level = [child for node in level for child in _children(node)]
        depth += 1
    return depth


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def _label(path: Path, root: Path) -> str:
    resolved, base = path.resolve(), root.resolve()
    return resolved.relative_to(base).as_posix() if resolved.is_relative_to(base) else path.name
