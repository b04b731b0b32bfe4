"""kill -9 of a worker and of doit at every stage: the next build ends well, with nothing stale and no leftovers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import TestWorkspace, make_workspace

from pydoit.stages import STAGES

RUNNING = [stage for stage in STAGES if stage != "fetch"]  # fetch reads a local model in place, without a worker


def start(workspace: TestWorkspace, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "doit", "build", *(arguments or ("tiny",))], cwd=workspace.root,
        env=workspace.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a job in the background ignores it
    )  # fmt: skip


def running(workspace: TestWorkspace) -> dict[str, Path]:
    """Job files of workers that have started, by stage."""
    found = {}
    for path in workspace.cache.glob("tmp/*/job.json"):
        try:
            found[json.loads(path.read_text())["stage"]] = path
        except (OSError, ValueError):
            continue
    return found


def workers(workspace: TestWorkspace, stage: str | None = None) -> list[psutil.Process]:
    """Worker processes of this workspace's store, of one stage or of all."""
    wanted = str(running(workspace).get(stage, "")) if stage else str(workspace.cache)
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if wanted and "pydoit.worker" in line and line[-1].startswith(wanted) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def forget(workspace: TestWorkspace, stage: str) -> None:
    """Drop a stage's entries from the store: it may have run beside one that was killed."""
    for path in workspace.cache.glob("actions/*/*.json"):
        if json.loads(path.read_text())["stage"] == stage:
            path.unlink()


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.002)
    pytest.fail("waited in vain")


def leftovers(workspace: TestWorkspace) -> list[Path]:
    hidden = [path for path in workspace.root.rglob("*") if path.name.startswith(".") and path.suffix == ".tmp"]
    return [*workspace.cache.glob("tmp/*"), *workspace.cache.rglob("*.tmp"), *hidden]


def test_kill_at_every_stage(tmp_path: Path) -> None:
    undisturbed, workspace = make_workspace(tmp_path / "a"), make_workspace(tmp_path / "b")
    for stage in RUNNING:
        forget(workspace, stage)
        process = start(workspace)
        wait_for(lambda stage=stage: stage in running(workspace))
        (victim,) = wait_for(lambda stage=stage: workers(workspace, stage))
        victim.send_signal(signal.SIGKILL)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 1, errors
        assert f"{stage} failed: the worker was killed by SIGKILL" in output
        assert not leftovers(workspace)

        forget(workspace, stage)
        process = start(workspace)
        wait_for(lambda stage=stage: stage in running(workspace))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        wait_for(lambda: not workers(workspace), 10)  # the worker does not outlive its parent
    assert workspace.build().keys() == set(STAGES)
    assert not leftovers(workspace)
    undisturbed.build()
    for name in ("lib.so", "weights/model.safetensors", "manifest.json"):
        ours, theirs = (item.root / "artifacts/tiny" / name for item in (workspace, undisturbed))
        assert ours.read_bytes() == theirs.read_bytes(), name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_at_once_and_leaves_nothing(workspace: TestWorkspace, number: signal.Signals) -> None:
    process = start(workspace, "tiny", "-n", "2")
    wait_for(lambda: workers(workspace, "import"))
    started = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=30)
    assert time.monotonic() - started < 5
    assert process.returncode == (130 if number == signal.SIGINT else 143)
    assert not workers(workspace)
    assert not leftovers(workspace)


def test_two_builds_at_once_do_each_stage_once(tmp_path: Path) -> None:
    one, two = make_workspace(tmp_path / "one"), make_workspace(tmp_path / "two")
    two.cache = one.cache
    processes = [start(one), start(two)]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    for stage in RUNNING:
        statuses = [next(item["status"] for item in space.report()["stages"] if item["name"] == stage) for space in (one, two)]
        assert statuses.count("built") == 1, (stage, statuses)
    assert not leftovers(one)


def test_parallel_builds_of_two_recipes_in_one_command(workspace: TestWorkspace) -> None:
    recipe = (workspace.root / "recipes/tiny.toml").read_text()
    workspace.write("recipes/other.toml", recipe.replace('preset = "O1"', 'preset = "O0"'))
    process = start(workspace, "-n", "2", "tiny", "other")
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert output.count("artifacts/") == 2
    assert {stage["status"] for stage in workspace.report("other")["stages"]} <= {"built", "hit"}


def test_unwritable_places_are_clear_errors(workspace: TestWorkspace) -> None:
    (workspace.root / "artifacts").write_text("a file in the folder's place")
    done = workspace.doit("build", "tiny")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "artifacts" in done.stderr + done.stdout
    (workspace.root / "artifacts").unlink()
    done = workspace.doit("build", "tiny", MODELBUILD_CACHE="/proc/none")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "/proc/none" in done.stderr + done.stdout


def test_a_missing_compiler_is_a_clear_error(workspace: TestWorkspace) -> None:
    done = workspace.doit("build", "tiny", CXX="no-such-compiler")
    assert done.returncode == 1
    assert "compile failed" in done.stdout
    assert "no-such-compiler" in done.stdout
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(workspace.root / "artifacts/tiny")) == ["report.html", "report.json"]
