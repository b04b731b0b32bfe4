"""The journal: rows in their order, several writers, a damaged file, another schema; the trend."""

from __future__ import annotations

import sqlite3
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from pydoit.errors import StoreError, UserError
from pydoit.regression.journal import FILE_NAME, Experiment, Journal
from pydoit.regression.trend import svg, table


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    assert journal.rows() == []
    rows = [Experiment("bench", name, f"change {number}", {"latency_ms": 1.5 + number}, "same", "", 1e9 + number)
            for number, name in enumerate(["a", "b", "a"])]  # fmt: skip
    for row in rows:
        journal.add(row)
    assert journal.rows() == rows
    assert journal.rows("a") == [rows[0], rows[2]]
    assert journal.rows(kind="profile") == []


def test_writers_side_by_side(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(5):
            Journal(tmp_path).add(Experiment("bench", str(number), "", {}))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Journal(tmp_path).rows()) == 30


def test_a_damaged_file_and_another_schema_are_said(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match="remove the file"):
        Journal(tmp_path).rows()
    (tmp_path / FILE_NAME).unlink()
    database = sqlite3.connect(tmp_path / FILE_NAME)
    database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(StoreError, match="its schema is 9"):
        Journal(tmp_path).add(Experiment("bench", "a", "", {}))


def test_the_trend_is_drawn_for_figures_that_there_are() -> None:
    rows = [Experiment("bench", "a", "<b> & c", {"latency_ms": 2.0 + number}, "worse", time=1e9) for number in range(3)]
    root = ET.fromstring(svg(rows, "latency_ms"))
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == 3
    ET.fromstring(svg(rows[:1], "latency_ms"))
    with pytest.raises(UserError, match="known: latency_ms"):
        svg(rows, "throughput")
    assert "no experiments" in table([])
    assert "latency_ms 4" in table(rows)
