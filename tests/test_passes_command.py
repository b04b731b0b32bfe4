"""doit passes and doit bisect as a user runs them, on the tiny workspace."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pydoit.experiments.states import most_builds
from tests.conftest import TestWorkspace

ORDER = """order = [
  "CanonicalizeBindings",  # first
  "LegalizeOps",
  # batch norms
  "FoldBatchNorm",
  { name = "FuseOps", fuse_opt_level = 2 },
  "FuseTIR",
]"""
FUSED = ["AnnotateTIROpPattern", "FuseOps", "FuseTIR", "DeadCodeElimination", "RewriteDataflowReshape"]
LOWERED = ["CanonicalizeBindings", "FoldBatchNorm", "LiftTransformParams", "LegalizeOps", *FUSED]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    from tests.conftest import make_workspace

    workspace = make_workspace(tmp_path_factory.mktemp("passes"))
    shutil.copy(Path(__file__).with_name("planted.py"), workspace.root / "recipes/planted.py")
    return workspace


def test_lists_and_documents(workspace: TestWorkspace) -> None:
    listed = workspace.doit("passes").stdout
    assert "FuseOps " in listed
    assert "presets: O0, O1, O2, O3" in listed
    shown = workspace.doit("passes", "FuseOps").stdout
    assert "needs:" in shown
    assert "fuse_opt_level = -1" in shown
    wrong = workspace.doit("passes", "FuseOp")
    assert wrong.returncode == 2
    assert "did you mean 'FuseOps'" in wrong.stderr


def test_draws_the_graph(workspace: TestWorkspace) -> None:
    assert workspace.doit("passes", "--graph").stdout.startswith("digraph passes {")
    assert workspace.doit("passes", "--graph", "-o", "p.svg").returncode == 0
    assert (workspace.root / "p.svg").read_text().startswith("<svg ")
    assert workspace.doit("passes", "--graph", "-o", "p.png").returncode == 2


def test_an_illegal_order_stops_the_build_and_is_mended(workspace: TestWorkspace) -> None:
    workspace.edit("recipes/tiny.toml", 'preset = "O1"', ORDER)
    build = workspace.doit("build", "tiny")
    assert build.returncode == 2
    assert (
        'recipes/tiny.toml:17: passes.order[2]: "FoldBatchNorm" needs Relax operators that are not lowered yet' in build.stderr
    )
    checked = workspace.doit("passes", "check", "tiny")
    assert checked.returncode == 2
    assert "smallest change: " in checked.stdout
    assert workspace.doit("passes", "check", "tiny", "--fix").returncode == 0
    assert "is legal" in workspace.doit("passes", "check", "tiny").stdout
    text = (workspace.root / "recipes/tiny.toml").read_text()
    for kept in ("# first", "# batch norms", '{ name = "FuseOps", fuse_opt_level = 2 }', '"AnnotateTIROpPattern"'):
        assert kept in text
    assert workspace.doit("plan", "tiny").returncode == 0


def test_presets_cannot_be_mended(workspace: TestWorkspace) -> None:
    done = workspace.doit("passes", "check", "tiny", "--set", 'target.kind="cuda"', "--set", 'passes.preset="O2"', "--fix")
    assert done.returncode == 2
    assert "not written in a file" in done.stderr


def test_difference_of_a_pass(planted: TestWorkspace) -> None:
    shown = planted.doit("passes", "diff", "tiny", "LegalizeOps")
    assert shown.returncode == 0, shown.stderr
    assert "--- before 7/12 LegalizeOps" in shown.stdout
    assert any(line.startswith("-") and "R.nn.conv2d" in line for line in shown.stdout.splitlines())
    assert any(line.startswith("+") and "R.call_tir" in line for line in shown.stdout.splitlines())
    assert "FoldBatchNorm changes nothing" in planted.doit("passes", "diff", "tiny", "5").stdout
    assert planted.doit("passes", "diff", "tiny", "PackWeights").returncode == 2


def test_report_has_figures_after_each_pass_and_numerics_are_checked(planted: TestWorkspace) -> None:
    planted.build("tiny")
    passes = planted.report()["measurements"]["optimize"]["passes"]
    assert [item["name"] for item in passes][-1] == "RewriteDataflowReshape"
    assert passes[-1]["figures"]["kernels"] < passes[0]["figures"]["kernels"]
    good = planted.doit("build", "tiny", "--stages", "optimize", "--set", 'passes.check="numerics"')
    assert good.returncode == 0, good.stderr
    order = json.dumps([*LOWERED[:4], "recipes.planted:Perturb", *LOWERED[4:]])
    bad = planted.doit(
        "build", "tiny", "--stages", "optimize", "--set", f"passes.order={order}", "--set", 'passes.check="numerics"'
    )
    assert bad.returncode == 1
    assert 'pass "recipes.planted:Perturb" (order[4]) changes results' in bad.stdout + bad.stderr


def bisect(workspace: TestWorkspace, order: list[object], *arguments: str) -> dict[str, object]:
    from pydoit.experiments.order_text import assign_order

    done = workspace.doit("bisect", "tiny", *arguments, "--set", assign_order(order), "--format", "json")  # type: ignore[arg-type]
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_perturbing_pass_is_found(planted: TestWorkspace) -> None:
    order = ["LegalizeOps", {"name": "recipes.planted:Perturb", "number": 2}, "RewriteDataflowReshape"]
    found = bisect(planted, order, "--metric", "verify.max_abs", "--max", "1e-3")
    assert (found["what"], found["name"]) == ("pass", "recipes.planted:Perturb")
    assert found["functions"] == ["main"]
    assert found["builds"] <= most_builds(len(order) + 1) + 1  # type: ignore[operator]  # one more halves the functions
    folder = planted.root / str(found["folder"])
    assert {path.name for path in folder.iterdir()} >= {"good.json", "bad.json", "reproduce.py", "kernel.npz"}
    shown = subprocess.run([sys.executable, folder / "reproduce.py"], capture_output=True, text=True, check=True)
    assert "differs by" in shown.stdout


@pytest.mark.slow
@pytest.mark.parametrize("place", range(1, 9))
@pytest.mark.parametrize("kind", ["Perturb", "NotANumber"])
def test_planted_faults_are_found(planted: TestWorkspace, kind: str, place: int) -> None:
    """One at each place of the order: another call each time."""
    order: list[object] = [*LOWERED]
    order.insert(place, {"name": f"recipes.planted:{kind}", "number": 1 + place % 2})
    question = ("--nan",) if kind == "NotANumber" else ("--metric", "verify.max_abs", "--max", "1e-3")
    found = bisect(planted, order, *question)
    assert found["name"] == f"recipes.planted:{kind}"
    assert found["builds"] <= most_builds(len(order) + 1) + 1  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize("place", [1, 2, 4])
def test_a_slow_pass_is_found(planted: TestWorkspace, place: int) -> None:
    order: list[object] = [*LOWERED]
    order.insert(place, {"name": "recipes.planted:Slow", "number": 1})
    question = ("--metric", "profile.latency_ms.median", "--max-regress", "5%", "--good", "O1")
    assert "recipes.planted:Slow" in str(bisect(planted, order, *question)["name"])


@pytest.mark.slow
def test_a_record_is_found(planted: TestWorkspace) -> None:
    """What a command calls bad: a tuned kernel, whose record the command looks for."""
    tuned = planted.doit("tune", "tiny", "--trials", "4", "--set", 'tune.records="recipes/tiny.json"')
    assert tuned.returncode == 0, tuned.stderr
    records = json.loads((planted.root / "recipes/tiny.json").read_text())["records"]
    for record in records:
        command = f"! grep -q {record['key']} $MODELBUILD_RECORDS"
        done = planted.doit(
            "bisect", "tiny", "--check", command, "--set", 'tune.records="recipes/tiny.json"', "--format", "json"
        )
        found = json.loads(done.stdout)
        assert (found["what"], found["name"]) == ("record", record["task"])


def test_wrong_questions_are_refused(workspace: TestWorkspace) -> None:
    for arguments in (
        ("bisect", "tiny"),
        ("bisect", "tiny", "--nan", "--check", "true"),
        ("bisect", "tiny", "--metric", "verify.max_abs"),
        ("bisect", "tiny", "--metric", "verify.max_abs", "--max-regress", "5%"),
        ("bisect", "tiny", "--metric", "cosine", "--min", "1"),
        ("bisect", "tiny", "--metric", "profile.latency_ms.median", "--max-regress", "much"),
        ("bisect", "nothing", "--nan"),
        ("passes", "ablate"),
        ("passes", "search", "tiny", "--budget", "soon"),
        ("passes", "diff", "tiny"),
    ):
        done = workspace.doit(*arguments)
        assert done.returncode == 2, arguments
        assert "Traceback" not in done.stderr
