"""The order that a recipe writes, legal or not: where it stands, and how to change it there."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydoit.errors import UserError
from pydoit.loading import Document, Layer, open_document
from pydoit.passes import LANGUAGE_PRESETS, PRESETS
from pydoit.passes.info import Entry
from pydoit.passes.order import Setting
from pydoit.workspace import Workspace

_PATH = ("passes", "order")


@dataclass(frozen=True)
class WrittenOrder:
    """The order of a recipe and its place."""

    workspace: Workspace
    document: Document
    order: tuple[Entry, ...]
    setting: Setting
    is_written: bool
    """Whether it is an order of the recipe's own, not a preset."""

    def where(self, index: int) -> str:
        """`file:line: passes.order[index]` of an entry; of the order itself for its end."""
        if not self.is_written:
            return "passes.preset"
        path: tuple[str | int, ...] = (*_PATH, index) if index < len(self.order) else _PATH
        shown = f"passes.order[{index}]" if index < len(self.order) else "passes.order"
        return f"{self.document.where(path)}: {shown}"


def read_order(workspace: Workspace, address: str, sets: Sequence[str] = ()) -> WrittenOrder:
    """The order of `NAME` or `NAME@VARIANT`, which need not be legal; other faults of the recipe are not looked at."""
    name, at, variant = (address, "", "") if address in workspace.recipe_files else address.partition("@")
    document = open_document(workspace.recipe_file(name), workspace.root, variant if at else None, sets)
    values = document.values
    chosen, model, target = (_table(values, section) for section in ("passes", "model", "target"))
    language = "kv_cache" in model or model.get("source") == "gguf"
    setting = Setting("cuda" if target.get("kind") == "cuda" else "cpu", language)
    order = chosen.get("order")
    if order is None:
        presets: Mapping[str, Any] = LANGUAGE_PRESETS[setting.target] if language else PRESETS
        return WrittenOrder(workspace, document, tuple(presets.get(str(chosen.get("preset", "O2")), ())), setting, False)
    if not isinstance(order, list) or not all(_is_entry(use) for use in order):
        raise UserError(f"{document.where(_PATH)}: passes.order: must be a list of names, or tables with a name; correct it")
    return WrittenOrder(workspace, document, tuple(order), setting, True)


def write_order(written: WrittenOrder, order: Sequence[Entry]) -> str:
    """Change the order where the recipe writes it, comments and all else as they are; the file's name.

    Raises UserError where no file of the workspace writes it.
    """
    import tomlkit

    layer = _layer(written.document)
    path = written.workspace.root / layer.label
    document: Any = tomlkit.parse(path.read_bytes().decode("utf-8-sig"))
    place: Any = document
    for key in (*layer.prefix, *_PATH):
        place = place[key]
    edit(place, written.order, order)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(tomlkit.dumps(document), encoding="utf-8")
    temporary.replace(path)
    return layer.label


def edit(array: Any, old: Sequence[Entry], new: Sequence[Entry]) -> None:
    """Turn a tomlkit array that holds `old` into `new` by the fewest removals and insertions."""
    matcher = difflib.SequenceMatcher(None, [str(use) for use in old], [str(use) for use in new], autojunk=False)
    for tag, first, last, start, end in reversed(matcher.get_opcodes()):
        if tag != "equal":
            for index in range(last - 1, first - 1, -1):
                del array[index]
            for offset, use in enumerate(new[start:end]):
                array.insert(first + offset, _item(use))


def _item(use: Entry) -> Any:
    import tomlkit

    if isinstance(use, str):
        return use
    table = tomlkit.inline_table()
    table.update(dict(use))
    return table


def _layer(document: Document) -> Layer:
    layers = [layer for layer in document.layers if layer.defines(_PATH) == len(_PATH)]
    if not layers or layers[-1].text is None:
        raise UserError("the order is not written in a file of the workspace; correct the command line or the preset")
    return layers[-1]


def _table(values: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    found = values.get(section, {})
    return found if isinstance(found, Mapping) else {}


def _is_entry(use: Any) -> bool:
    return isinstance(use, str) or (isinstance(use, Mapping) and isinstance(use.get("name"), str))
