"""A case of each operator from onnx's own node tests, in processes of their own; all of them with -m slow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
REFUSED = ("Bernoulli", "ImageDecoder", "NonMaxSuppression", "NonZero", "TreeEnsemble", "Unique", "training")
"""Operators that are refused by name."""


def run(file: Path, *options: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-W", "ignore", "benchmarks/coverage.py", "onnx", "--json", str(file), *options]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return json.loads(file.read_text(encoding="utf-8"))


def test_one_case_of_each_operator(tmp_path: Path) -> None:
    outcomes = run(tmp_path / "outcomes.json", "--sample", "--filter", "!*expanded*,!*cast*")
    failed = [o for o in outcomes if o["status"] == "failed"]
    assert len(outcomes) > 150
    assert [o for o in failed if not any(name in o["operator"] for name in REFUSED)] == []
    assert all("cannot be imported" in o["reason"] for o in failed)


@pytest.mark.slow
def test_all_cases(tmp_path: Path) -> None:
    outcomes = run(tmp_path / "outcomes.json", "--filter", "*,*")
    assert not [o for o in outcomes if "CRASH" in o["reason"]]
    for expanded in (False, True):
        group = [o for o in outcomes if ("_expanded" in o["name"]) == expanded and o["status"] != "excluded"]
        passed = [o for o in group if o["status"] == "passed"]
        assert len(passed) >= 0.95 * len(group)
