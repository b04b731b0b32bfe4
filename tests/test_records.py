"""Records files: one line a kernel, stable, for one arch, refused when damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pydoit.errors import UserError
from pydoit.records import Record, Records, TuningTarget, read_records

CHECKED_IN = sorted((Path(__file__).parents[1] / "recipes" / "tuning").glob("*.json"))


def record(task: str, key: str) -> Record:
    return Record(task=task, key=key, decisions={"rows": 8}, microseconds=1.0, default_microseconds=2.0)


def test_the_text_is_stable_and_reads_back(tmp_path: Path) -> None:
    records = [record("b", "2"), record("a", "9"), record("a", "1")]
    texts = {
        Records(target=TuningTarget(arch="x86-64-v4"), records=tuple(order)).to_text() for order in (records, records[::-1])
    }
    (text,) = texts
    assert len(text.splitlines()) == 5
    path = tmp_path / "records.json"
    path.write_text(text)
    assert [(found.task, found.key) for found in read_records(path).records] == [("a", "1"), ("a", "9"), ("b", "2")]


def test_decisions_apply_to_their_arch_only() -> None:
    records = Records(target=TuningTarget(arch="x86-64-v4"), records=(record("a", "1"),))
    assert records.decisions("x86-64-v4") == {"1": {"rows": 8}}
    assert records.decisions("x86-64-v3") == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2, "target": {"arch": "x"}}', '{"schema": 1}'])
def test_damaged_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"records\.json"):
        read_records(path)


@pytest.mark.parametrize("path", CHECKED_IN, ids=lambda path: path.stem)
def test_checked_in_files_are_in_their_normal_form(path: Path) -> None:
    assert read_records(path).to_text() == path.read_text()
    for line in json.loads(path.read_text())["records"]:
        assert line["microseconds"] <= line["default_microseconds"]
