"""doit bench as a user runs it: folders, recipes, revisions, what it writes, what it refuses."""

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
