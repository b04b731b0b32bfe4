"""The journal of a workspace: one row an experiment, what changed, its figures, the verdict, why it failed (SQLite)."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydoit.errors import StoreError

FILE_NAME = "journal.db"
SCHEMA = 1
_TABLE = """
CREATE TABLE IF NOT EXISTS experiments (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, recipe TEXT NOT NULL, changed TEXT NOT NULL,
    figures TEXT NOT NULL, verdict TEXT NOT NULL, reason TEXT NOT NULL
)"""


@dataclass(frozen=True)
class Experiment:
    """A row."""

    kind: str
    """`bench`, `profile`, ..."""
    recipe: str
    changed: str
    """What is new in it, for people."""
    figures: Mapping[str, Any]
    """Numbers by name; of a profile, `library` is the digest of what was measured."""
    verdict: str = ""
    reason: str = ""
    """Why it failed."""
    time: float = 0.0
    """Seconds since 1970; 0: now."""


class Journal:
    """Rows are added, never changed; the file is disposable."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME

    def add(self, experiment: Experiment) -> None:
        """Append a row. Raises StoreError where the file cannot be written or is of another schema."""
        row = (experiment.time or time.time(), experiment.kind, experiment.recipe, experiment.changed,
               json.dumps(experiment.figures, sort_keys=True), experiment.verdict, experiment.reason)  # fmt: skip
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as database, database:
                database.execute(
                    "INSERT INTO experiments (time, kind, recipe, changed, figures, verdict, reason) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    row,
                )
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self._path}: {error}; remove the file, the journal begins anew") from error

    def rows(self, recipe: str = "", kind: str = "") -> list[Experiment]:
        """Rows in their order, those of one recipe or kind where that is named."""
        if not self._path.exists():
            return []
        try:
            with closing(self._open()) as database:
                found = database.execute(
                    "SELECT kind, recipe, changed, figures, verdict, reason, time FROM experiments "
                    "WHERE (?1 = '' OR recipe = ?1) AND (?2 = '' OR kind = ?2) ORDER BY id", (recipe, kind),
                ).fetchall()  # fmt: skip
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}; remove the file, the journal begins anew") from error
        return [Experiment(kind, name, changed, json.loads(figures), verdict, reason, when)
                for kind, name, changed, figures, verdict, reason, when in found]  # fmt: skip

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=30.0)
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, SCHEMA):
            database.close()
            raise StoreError(f"{self._path}: its schema is {version}, this version reads {SCHEMA}; remove the file")
        with database:
            database.execute(_TABLE)
            database.execute(f"PRAGMA user_version = {SCHEMA}")
        return database
