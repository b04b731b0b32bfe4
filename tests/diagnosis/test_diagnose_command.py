"""doit diagnose and doit doctor --calibrate as a user runs them, and the planted models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import TestWorkspace, make_workspace
from tests.diagnosis.planted import PLANTED, recipe

QUICK = ("round-trip", "crumbs")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    workspace = make_workspace(tmp_path_factory.mktemp("planted"))
    shutil.copy(Path(__file__).with_name("planted_models.py"), workspace.root / "recipes/planted.py")
    for name, case in PLANTED.items():
        workspace.write(f"recipes/{name}.toml", recipe(name, case))
    return workspace


def _check(workspace: TestWorkspace, name: str) -> None:
    case = PLANTED[name]
    done = workspace.doit("diagnose", name, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["findings"]
    if not case.bottleneck:
        assert found == []
        return
    first = next(finding for finding in found if finding["class"] == case.bottleneck)
    assert (first["kind"], case.kernel in first["kernel"]) == (case.kind, True), found
    # What was planted in the build is judged by the build alone; all else must be the worst.
    assert first is found[0] or case.bottleneck == "compile", found


@pytest.mark.parametrize("name", QUICK)
def test_what_was_planted_is_found(planted: TestWorkspace, name: str) -> None:
    _check(planted, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PLANTED if name not in QUICK])
def test_all_that_was_planted_is_found(planted: TestWorkspace, name: str) -> None:
    _check(planted, name)


def test_changes_are_tried_until_nothing_gains(planted: TestWorkspace) -> None:
    done = planted.doit("diagnose", "crumbs", "--try")
    assert done.returncode == 0, done.stderr
    assert 'passes.preset="O2"' in done.stdout.partition("put into the recipe")[2], done.stdout
    assert "the bottleneck moved" in done.stdout
    document = json.loads((planted.root / "artifacts/.modelbuild/experiments/crumbs/diagnose.json").read_text())
    assert document["after_ms"] < document["before_ms"]
    assert document["trials"][0]["outcome"] == "faster"


def test_the_report_has_bounds_once_the_machine_is_calibrated(planted: TestWorkspace) -> None:
    assert planted.doit("build", "round-trip").returncode == 0
    report = planted.report("round-trip")
    assert report["profile"]["ceilings"]["flops"]["float32"] > 1e9
    assert all(kernel["bound"] for kernel in report["profile"]["kernels"])
    assert "round trip" in [finding["kind"] for finding in report["diagnosis"]["findings"]]
    trace = report["profile"]["trace"]
    assert trace["kernels_ms"] + trace["gaps_ms"] == pytest.approx(trace["traced_ms"])


def test_calibrating_keeps_the_best(planted: TestWorkspace) -> None:
    first = planted.doit("doctor", "--calibrate", "--format", "json")
    assert first.returncode == 0, first.stderr
    before = json.loads(first.stdout)
    (path,) = [file for file in (planted.cache / "machines").iterdir() if json.loads(file.read_text())["threads"] == 1]
    raised = json.loads(path.read_text())
    raised["flops"]["float32"] = 1e15
    path.write_text(json.dumps(raised))
    again = json.loads(planted.doit("doctor", "--calibrate", "--format", "json").stdout)
    assert again[0]["flops"]["float32"] == 1e15
    assert before[0]["threads"] == 1
    assert again[0]["call_seconds"] <= before[0]["call_seconds"]


@pytest.mark.parametrize("arguments", [(), ("a", "b"), ("nothing",)])
def test_wrong_use(planted: TestWorkspace, arguments: tuple[str, ...]) -> None:
    done = planted.doit("diagnose", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
