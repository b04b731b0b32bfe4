"""Environment: the machine and the tools that this build used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydoit.report.blocks import Block, Cell, Column, Facts, Folded, Reason, Section, Table
from pydoit.report.numbers import counted, shortened, size
from pydoit.report.reading import part, parts


def environment(report: Mapping[str, Any]) -> Section:
    """Facts, tools with their versions, files of the artifact."""
    found = part(report, "environment")
    blocks: list[Block] = []
    if found:
        blocks.append(Facts([(name, shortened(value, 200)) for name, value in found.items() if isinstance(value, str | int)]))
    else:
        blocks.append(Reason("The environment is not in this report; build again to have it."))
    for name, caption in (("tools", "Tools and their versions"), ("variables", "Variables that change what comes out")):
        listed = part(found, name)
        if listed:
            rows = [[Cell(shortened(tool), "code"), Cell(shortened(version, 200), "code")] for tool, version in listed.items()]
            table = Table(caption, [Column("name"), Column("value")], rows)
            blocks.append(Folded(f"{counted(len(rows), 'tool')} and their versions", [table]) if name == "tools" else table)
    files = parts(report.get("artifact"))
    if files:
        columns = [Column("file"), Column("size", is_number=True), Column("sha256")]
        rows = [_file(item) for item in files]
        blocks.append(Table("Files of the artifact", columns, rows))
    return Section("environment", "Environment", blocks)


def _file(item: Mapping[str, Any]) -> list[Cell]:
    digest = str(item.get("sha256") or "")[:16]
    return [Cell(shortened(item.get("path")), "code"), Cell(size(item.get("bytes"))), Cell(digest, "code")]
