"""tune: records apply by kernel and arch, misses are named, damaged files are refused; a short search finds records."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain import results, run_chain
from test_zoo import model_of

from pydoit.errors import UserError
from pydoit.records import read_records
from pydoit.stages import compile as compile_stage
from pydoit.stages import tune

TARGET = {"kind": "cpu", "arch": "x86-64-v3", "threads": 2}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return run_chain(model_of("residual"), tmp_path_factory.mktemp("tune"), "O2", "x86-64-v3")


def search_apart(spec: dict[str, Any], built: dict[str, Path], out: Path) -> dict[str, Any]:
    """Search in a worker, as `doit tune` does: it forks, which a process with running thread pools must not do."""
    inputs = {name: str(path) for name, path in built.items()}
    job = {"stage": "search", "spec": spec, "out": str(out), "inputs": inputs, "root": str(out)}
    (out / "job.json").write_text(json.dumps(job))
    subprocess.run([sys.executable, "-m", "pydoit.worker", str(out / "job.json")], check=True, stdin=subprocess.PIPE)
    result = json.loads((out / "result.json").read_text())
    assert result["status"] == "built", result
    return result["measurements"]


@pytest.fixture(scope="module")
def records(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    spec = {"trials": 2, "budget_seconds": 120, "checkpoint": str(folder / "checkpoint.json"), "target": TARGET}
    measured = search_apart(spec, built, folder)
    assert measured["records"] == measured["tasks"] > 0
    return folder / "records.json"


def run(built: dict[str, Path], out: Path, records: Path | None = None, **changes: Any) -> dict[str, Any]:
    inputs = built if records is None else {**built, "records": records}
    return tune.run(tune.Spec.model_validate({"target": TARGET, **changes}), inputs, out)


def test_records_match_and_give_the_same_results(built: dict[str, Path], records: Path, tmp_path: Path) -> None:
    image = np.random.default_rng(0).normal(size=(1, 24, 10, 10)).astype(np.float32)
    before = results(built, x=image)
    measured = run(built, tmp_path, records)
    assert measured["matched"] == measured["tasks"]
    assert (measured["missed"], measured["ignored_reason"]) == ([], None)
    (tmp_path / "lib").mkdir()
    compiled = compile_stage.run(
        compile_stage.Spec.model_validate({"target": TARGET}), {**built, "tune": tmp_path}, tmp_path / "lib"
    )
    assert compiled["tuned"] == measured["matched"]
    shutil.copytree(built["package"], tmp_path / "package")  # a loaded library must not be written to
    (tmp_path / "package/lib.so").unlink()
    shutil.copy(tmp_path / "lib/lib.so", tmp_path / "package/lib.so")
    after = results({"package": tmp_path / "package"}, x=image)
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, atol=1e-5)


def test_records_of_another_arch_are_ignored_and_told(built: dict[str, Path], records: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(records.read_text().replace("x86-64-v3", "x86-64-v4"))
    measured = run(built, tmp_path, other)
    assert measured["matched"] == 0
    assert "x86-64-v4" in measured["ignored_reason"]
    with pytest.raises(UserError, match="no record for"):
        run(built, tmp_path, other, on_miss="error")


def test_stale_records_are_named(built: dict[str, Path], records: Path, tmp_path: Path) -> None:
    document = json.loads(records.read_text())
    document["records"].append({**document["records"][0], "task": "gone", "key": "0" * 64})
    (tmp_path / "stale.json").write_text(json.dumps(document))
    assert run(built, tmp_path, tmp_path / "stale.json")["stale"] == ["gone"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "target": {"arch": 3}}'])
def test_damaged_files_are_refused_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"x\.json"):
        read_records(path)


def test_a_search_goes_on_from_its_checkpoint(built: dict[str, Path], records: Path, tmp_path: Path) -> None:
    spec = {"trials": 2, "budget_seconds": 0.0, "checkpoint": str(records.parent / "checkpoint.json"), "target": TARGET}
    measured = search_apart(spec, built, tmp_path)
    assert measured["known"] == measured["records"] == measured["tasks"]
