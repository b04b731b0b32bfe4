"""A built wheel, installed plainly, brings the commands and builds a model."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import make_workspace

ROOT = Path(__file__).parents[1]


# Neither the checkout nor what the caller put on the path may stand in for the installed wheel.
OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=OUTSIDE, cwd="/", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_tiny(python: Path, folder: Path) -> Path:
    """Build the test workspace's recipe with this Python; the artifact's folder."""
    workspace = make_workspace(folder)
    done = subprocess.run(
        [python, "-m", "doit", "build", "tiny"], cwd=workspace.root, capture_output=True, text=True, check=False,
        env={**OUTSIDE, "MODELBUILD_CACHE": str(workspace.cache)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace.root / "artifacts/tiny"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    listed = run("git", "-C", ROOT, "ls-files", "-z", "--", "pydoit", "pyproject.toml", "README.md", "LICENSE")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, source)
    (built,) = folder.glob("doit_modelbuild-*.whl")
    return built


def test_a_wheel_builds_a_model(wheel: Path, tmp_path: Path) -> None:
    """The dependencies are those of this environment, seen through a path file; pip checks that they satisfy the wheel."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    location = run(python, "-c", "import pydoit; print(pydoit.__file__)")
    assert location.startswith(str(tmp_path))
    run(python, "-m", "pip", "check")
    assert (build_tiny(python, tmp_path) / "lib.so").is_file()


@pytest.mark.slow
def test_a_wheel_with_its_own_dependencies(wheel: Path, tmp_path: Path) -> None:
    """Minutes: everything is installed anew, from the wheel's requirements and torch's pin alone."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    (tmp_path / "pins.txt").write_text("torch==2.13.0\n")
    run(python, "-m", "pip", "install", "--quiet", "-c", tmp_path / "pins.txt", wheel)
    versions = run(python, "-m", "pip", "list", "--format=freeze")
    assert "apache-tvm-ffi==0.1.14.post0" in versions
    assert (build_tiny(python, tmp_path) / "lib.so").is_file()
