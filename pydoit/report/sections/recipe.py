"""Recipe: its resolved values, defaults filled in and the preset's passes written out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydoit.report.blocks import Cell, Column, Folded, Reason, Section, Table
from pydoit.report.numbers import shortened
from pydoit.report.reading import part

LONGEST = 2000
COLUMNS = (Column("key"), Column("value"))


def recipe(report: Mapping[str, Any]) -> Section:
    """A table of dotted keys and values for each of the recipe's tables."""
    values = part(report, "recipe_values")
    if not values:
        return Section("recipe", "Recipe", [Reason("The resolved values are not in this report; build again to have them.")])
    tables = [_table(name, value) for name, value in values.items()]
    count = sum(len(table.rows) for table in tables)
    return Section("recipe", "Recipe", [_target(report), Folded(f"All {count} values", tables)])


def _table(name: str, value: Any) -> Table:
    title = f"[{name}]" if isinstance(value, Mapping) else name
    return Table(shortened(title), COLUMNS, [_row(*pair) for pair in flattened(value, name)])


def _row(key: str, text: str) -> list[Cell]:
    return [Cell(shortened(key), "code"), Cell(shortened(text, LONGEST), "code")]


def _target(report: Mapping[str, Any]) -> Table:
    """The lines that are asked for most: where the model comes from and what it is built for."""
    values = part(report, "recipe_values")
    chosen = dict(flattened(values, ""))
    keys = ("model.source", "model.path", "model.revision", "target.kind", "target.arch", "target.threads", "target.precision",
            "passes.preset", "quantization.scheme", "tune.records", "verify.dataset", "verify.samples")  # fmt: skip
    rows = [[Cell(key, "code"), Cell(shortened(chosen[key], 300), "code")] for key in keys if key in chosen]
    arch = part(report, "target").get("arch")
    rows.append([Cell("resolved arch"), Cell(str(arch), "code")])
    return Table("What is built, and for what", COLUMNS, rows)


def flattened(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """Dotted key and value as JSON, a pair for each that is no table."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flattened(item, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
