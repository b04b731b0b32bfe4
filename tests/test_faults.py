"""Builds under kill -9, full and failing disks, torn writes, jumping clocks, dying lock holders and foreign hosts."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import fault_layer
import pytest
from conftest import TestWorkspace, make_workspace
from fault_runs import SCENES, WORKER_STAGES, Pipeline, build, hold, leftovers, published, start, wait

from pydoit.history import LEFT_SECONDS, is_temporary, sweep
from pydoit.machine import host_identity
from pydoit.store import FOREIGN_SECONDS, Store

IN_CI = 16


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return Pipeline(tmp_path_factory.mktemp("faults"))


def test_every_place_where_the_store_touches_a_file_is_known(pipeline: Pipeline) -> None:
    places = {caller for _, caller in map(tuple, pipeline.sites)}
    assert {"store._place", "store._write", "store.restore", "store.scratch", "store.lookup", "locks._open",
            "publish.publish", "builder.lay_out"} <= places  # fmt: skip
    assert {name for name, _ in map(tuple, pipeline.sites)} >= {"open", "fsync", "replace", "mkdir", "unlink", "symlink"}


@pytest.mark.parametrize("seed", range(IN_CI))
def test_a_plain_build_after_a_fault_is_as_if_nothing_had_been(pipeline: Pipeline, seed: int) -> None:
    run = pipeline.run(seed)
    assert not run.faults, run


@pytest.mark.slow
def test_five_hundred_runs(pipeline: Pipeline) -> None:
    """An hour."""
    runs = [pipeline.run(seed) for seed in range(10_000, 10_500)]
    print(Counter((run.scene, run.kind) for run in runs), Counter(run.met for run in runs))
    assert not [run for run in runs if run.faults]
    assert {run.scene for run in runs} == set(SCENES)
    assert {run.kind for run in runs} == set(fault_layer.KINDS)


def overlapping(folder: Path, count: int) -> tuple[list[TestWorkspace], list[subprocess.Popen[bytes]]]:
    """`count` builds at once, of two recipes that share all stages up to optimize, over one store."""
    workspaces = []
    for number in range(count):
        workspace = make_workspace(folder / str(number))
        workspace.cache = folder / "cache"
        recipe = (workspace.root / "recipes/tiny.toml").read_text()
        workspace.write("recipes/other.toml", recipe.replace('preset = "O1"', 'preset = "O2"'))
        workspaces.append(workspace)
    roots = [str(folder)]
    processes = []
    for number, workspace in enumerate(workspaces):
        plan = {"at": -1, "kind": "", "roots": roots, "seconds": 0.1, "machine": str(folder)}
        environment = workspace.environment(**fault_layer.prepare(folder / str(number) / "run", plan))
        processes.append(start(workspace, environment, "other", "-n", "2"))
    return workspaces, processes


@pytest.mark.parametrize("count", [2, 8])
def test_builds_at_once_do_each_stage_once(tmp_path: Path, count: int) -> None:
    workspaces, processes = overlapping(tmp_path, count)
    assert [wait(process) for process in processes] == [0] * count
    built: Counter[str] = Counter()
    keys = set()
    for workspace in workspaces:
        for recipe in ("tiny", "other"):
            report = json.loads((workspace.root / f"artifacts/{recipe}/report.json").read_bytes())
            keys |= {stage["key"] for stage in report["stages"] if stage["name"] != "fetch"}
            built.update(stage["key"] for stage in report["stages"] if stage["status"] == "built")
    assert built == dict.fromkeys(keys, 1)
    assert len({json.dumps({name: data.hex() for name, data in published(item).items()}) for item in workspaces}) == 1
    assert not [path for workspace in workspaces for path in leftovers(workspace)]


@pytest.mark.parametrize("stage", ["import", "compile", "package"])
def test_a_full_disk_under_a_worker(pipeline: Pipeline, tmp_path: Path, stage: str) -> None:
    workspace = make_workspace(tmp_path)
    roots = [str(workspace.cache), str(workspace.root / "artifacts")]
    plan = {"at": -1, "kind": "ENOSPC", "worker": stage, "roots": roots}
    done = build(workspace, workspace.environment(**fault_layer.prepare(tmp_path / "run", plan)))
    assert done.returncode == 1
    assert f"{stage} failed: OSError: [Errno 28] No space left on device" in done.stdout
    assert not leftovers(workspace)


def test_garbage_collection_waits_while_a_build_holds_the_store(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    roots = [str(workspace.cache)]
    plan = {"at": -1, "kind": "", "roots": roots, "seconds": 0.3}
    process = start(workspace, workspace.environment(**fault_layer.prepare(tmp_path / "run", plan)))
    while not list(workspace.cache.glob("actions/*/*.json")):
        assert process.poll() is None
    collected = workspace.doit("cache", "gc", "--max-size", "0MB", "--format", "json")
    assert (workspace.root / "artifacts/tiny/manifest.json").is_file()  # gc began after the build had published
    assert wait(process) == 0
    assert json.loads(collected.stdout)["entries_removed"] == len(WORKER_STAGES) + 1  # tokenizer's, too


def test_the_next_build_goes_on_when_a_lock_holder_is_killed(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    path = workspace.cache / "locks/store.lock"
    path.parent.mkdir(parents=True)
    path.touch()
    holder = hold(path)
    plan = {"at": -1, "kind": "", "roots": [str(workspace.cache)]}
    process = start(workspace, workspace.environment(**fault_layer.prepare(tmp_path / "run", plan)))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    holder.kill()
    holder.wait()
    assert wait(process) == 0


def test_folders_of_another_host_are_swept_only_when_they_are_old(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in ("0123456789ab-1", f"{host_identity()}-2"):
        (tmp_path / "tmp" / name).mkdir(parents=True)
        (tmp_path / "tmp" / name / "owner.lock").touch()
    assert store.sweep() == 1
    assert [path.name for path in tmp_path.glob("tmp/*")] == ["0123456789ab-1"]
    old = (tmp_path / "tmp/0123456789ab-1").stat().st_mtime - FOREIGN_SECONDS - 1
    os.utime(tmp_path / "tmp/0123456789ab-1", (old, old))
    assert store.sweep() == 1


def test_temporary_files_of_the_dead_are_swept_and_no_others(tmp_path: Path) -> None:
    names = [f".report.json.{'0' * 32}.tmp", f".young.{'1' * 32}.tmp", ".mine.tmp", f"x.{'0' * 32}.tmp"]
    for name in names:
        (tmp_path / name).touch()
        if "young" not in name:
            os.utime(tmp_path / name, (LEFT_SECONDS, LEFT_SECONDS))
    assert [is_temporary(name) for name in names] == [True, True, False, False]
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])
    sweep(tmp_path / "nowhere")
