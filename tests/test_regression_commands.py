"""doit bench and doit diff as a user runs them: folders, recipes, revisions, what they write, what they refuse."""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

from tests.conftest import TestWorkspace, make_workspace

SHORT = ("--rounds", "6", "--processes", "4", "--margin", "90%")
SLOW = """
class Net(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.more = net, nn.ModuleList(nn.Conv2d(3, 3, 7, padding=3) for _ in range(12))

    def forward(self, input):
        x = input
        for layer in self.more:
            x = layer(x).tanh()
        return self.net(x)


def build(folder: Path) -> nn.Module:
    import torch

    torch.manual_seed(0)
    net = nn.Sequential(block(3, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    return Net(net).eval()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    """A repository with `tiny`, and `tiny@slow`, which computes much more."""
    workspace = make_workspace(tmp_path_factory.mktemp("bench"))
    head = (workspace.root / "recipes/tiny_net.py").read_text().split("def build")[0]
    workspace.write("recipes/slow_net.py", head + SLOW)
    recipe = (workspace.root / "recipes/tiny.toml").read_text()
    workspace.write("recipes/tiny.toml", recipe + '\n[variant.slow.model]\nfactory = "recipes.slow_net:build"\n')
    workspace.write(".gitignore", "artifacts/\n__pycache__/\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run([*git, *arguments], cwd=workspace.root, check=True)
    assert workspace.doit("build", "tiny", "tiny@slow").returncode == 0
    return workspace


def test_a_slower_artifact_ends_with_status_one_and_is_written_down(built: TestWorkspace) -> None:
    done = built.doit("bench", "tiny", "tiny@slow", *SHORT, "--junit", "junit.xml", "--markdown", "summary.md")
    assert (done.returncode, "verdict: worse" in done.stdout) == (1, True), done.stdout + done.stderr
    suite = ET.parse(built.root / "junit.xml").getroot()
    assert (suite.get("failures"), suite[0].get("name")) == ("1", "latency")
    assert "`tiny@slow` against `tiny`: worse" in (built.root / "summary.md").read_text()
    shown = built.doit("bench", "--history", "tiny@slow")
    assert "tiny@slow against tiny" in shown.stdout
    assert "worse" in shown.stdout
    assert built.doit("bench", "--history", "--plot", "trend.svg").returncode == 0
    assert (built.root / "trend.svg").read_text().startswith("<svg ")


def test_folders_and_revisions(built: TestWorkspace) -> None:
    copy = built.root / "elsewhere"
    shutil.copytree(built.root / "artifacts/tiny", copy)
    done = built.doit("bench", "tiny:HEAD", str(copy), *SHORT, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["first"], found["second"]) == ("tiny:HEAD", str(copy))
    change = found["changes"][0]
    assert change["processes"] == 4
    assert 0 < change["low"] <= change["ratio"] <= change["high"]
    trees = subprocess.run(["git", "worktree", "list"], cwd=built.root, capture_output=True, text=True, check=True)
    assert len(trees.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tiny",), "takes two artifacts"),
        (("tiny", "tinny"), "did you mean"),
        (("tiny:nowhere", "tiny"), "git rev-parse"),
        (("tiny", "tiny", "--margin", "2"), "write a percentage"),
        (("tiny", "tiny", "--rounds", "1"), "at least 2"),
        (("tiny", "tiny", "--at", "batch"), "NAME=EXTENT"),
        (("--history", "--plot", "x.svg", "--figure", "speed"), "no experiment has the figure"),
    ],
)
def test_what_is_wrong_is_said(built: TestWorkspace, arguments: tuple[str, ...], says: str) -> None:
    done = built.doit("bench", *arguments)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


def difference(workspace: TestWorkspace, first: str, second: str) -> dict[str, list[str]]:
    """Title -> lines of `doit diff`."""
    done = workspace.doit("diff", first, second, "--format", "json")
    assert done.returncode == 0, done.stderr
    return {section["title"]: section["lines"] for section in json.loads(done.stdout)["sections"]}


def test_diff_names_fields_kernels_sizes_and_measurements(built: TestWorkspace) -> None:
    found = difference(built, "tiny", "tiny@slow")
    assert found["recipe"] == ["model.factory: recipes.tiny_net:build -> recipes.slow_net:build"]
    assert any(line.startswith("added ") and "tanh" in line for line in found["kernels"])
    assert any(line.startswith("weights/model.safetensors: ") for line in found["size"])
    assert any(line.startswith("median: ") and line.endswith(" %)") for line in found["latency"])
    shown = built.doit("diff", "tiny", "tiny@slow").stdout
    assert shown.startswith("tiny -> tiny@slow\nrecipe:\n  model.factory: ")
    assert "doit bench tiny tiny@slow" in shown


def test_diff_of_a_recipe_with_itself_and_of_folders(built: TestWorkspace) -> None:
    assert difference(built, "tiny", "tiny") == {}
    folder = built.root / "another"
    shutil.copytree(built.root / "artifacts/tiny", folder)
    assert "no difference" in built.doit("diff", "tiny", str(folder)).stdout
    found = difference(built, str(folder), "artifacts/tiny@slow")
    assert "recipe" not in found
    assert any(line.startswith("added ") for line in found["kernels"])


def test_diff_of_an_order(built: TestWorkspace) -> None:
    built.write("recipes/other.toml", (built.root / "recipes/tiny.toml").read_text().replace('preset = "O1"', 'preset = "O2"'))
    found = difference(built, "tiny", "other")
    assert any(line.startswith("passes.order[") for line in found["recipe"])
    assert found["kernels"]


def test_a_gate_keeps_a_slower_artifact_from_being_published(built: TestWorkspace) -> None:
    recipe = (built.root / "recipes/tiny.toml").read_text().split("[variant")[0]
    gate = '\n[[gate]]\nmetric = "profile.latency_ms.median"\nmax_regress = "90%"\n'
    built.write("recipes/guarded.toml", recipe + gate)
    first = built.doit("build", "guarded")
    assert first.returncode == 0, first.stderr
    assert "not judged, no artifact is locked" in first.stderr + first.stdout
    assert built.doit("lock", "guarded").returncode == 0
    library = (built.root / "artifacts/guarded/lib.so").read_bytes()
    built.write("recipes/guarded.toml", recipe.replace("recipes.tiny_net", "recipes.slow_net") + gate)
    done = built.doit("build", "guarded")
    assert (done.returncode, "against locked, max_regress = 90%" in done.stdout + done.stderr) == (1, True), done.stderr
    assert (built.root / "artifacts/guarded/lib.so").read_bytes() == library
    built.write("recipes/guarded.toml", recipe + gate)
    assert built.doit("build", "guarded").returncode == 0


@pytest.mark.parametrize(
    ("gate", "says"),
    [
        ('metric = "verify.cosine"\nmax_regress = "3%"', "goes with profile.latency_ms.median"),
        ('metric = "profile.latency_ms.median"\nmax_regress = "3"', "max_regress"),
        ('metric = "verify.cosine"\nmin = 0.9\nagainst = "main"', "goes with max_regress"),
    ],
)
def test_gates_that_make_no_sense_are_refused(workspace: TestWorkspace, gate: str, says: str) -> None:
    recipe = (workspace.root / "recipes/tiny.toml").read_text()
    workspace.write("recipes/tiny.toml", f"{recipe}\n[[gate]]\n{gate}\n")
    done = workspace.doit("build", "tiny")
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
