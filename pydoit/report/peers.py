"""Measurements of other engines, from the workspace's checked-in file ([report] peers of modelbuild.toml)."""

from __future__ import annotations

import json
from typing import Any

from pydoit.errors import UserError
from pydoit.report.reading import number
from pydoit.workspace import Workspace

MAX_BYTES = 4_000_000
SCHEMA = 1


def read_peers(workspace: Workspace, recipe: str) -> list[dict[str, Any]]:
    """The rows of a recipe; none where no file is named. Raises UserError for one that cannot be read or is no such file."""
    name = workspace.settings.peers
    if not name:
        return []
    path = workspace.inside(name)
    if path is None:
        raise UserError(f"modelbuild.toml: report.peers: {name!r} leaves the workspace; name a file inside it")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES:,} bytes")
        document = json.loads(path.read_bytes())
        rows = document["rows"]
        if document["schema"] != SCHEMA or not isinstance(rows, list):
            raise ValueError(f"not of schema {SCHEMA}")
        found = [dict(row) for row in rows if row["model"] == recipe]
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}; correct report.peers in modelbuild.toml") from None
    except (ValueError, KeyError, TypeError) as error:
        said = f"has no {error}" if isinstance(error, KeyError) else str(error)
        form = '{"schema": 1, "rows": [{"model", "peer", "ours_ms", "peer_ms", "ratio"}]}'
        raise UserError(f"{name}: {said}; write {form}, as benchmarks/cpu.py does") from None
    for row in found:
        _check(name, row)
    return found


def _check(name: str, row: dict[str, Any]) -> None:
    for key in ("ours_ms", "peer_ms", "ratio"):
        value = number(row.get(key))
        if value is None or value <= 0:
            raise UserError(f"{name}: {row.get('model')}, {row.get('peer')}: {key} is {row.get(key)!r}; write a number above 0")
