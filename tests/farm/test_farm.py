"""Stages on a cluster of processes that share no disk with the build but the remote: keys, files, faults, interrupts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fault_layer
import pytest
from conftest import TestWorkspace, make_workspace
from remote_faults import SECRET, MemoryTransport
from remote_faults import open_cache as open_remote_of

from pydoit import process
from pydoit.farm.cluster import ClusterError
from pydoit.farm.executor import Farm, needs
from pydoit.farm.job import Answer, Job, decode_answer, decode_job, encode_answer, encode_job
from pydoit.nodes import Node
from pydoit.remote import open_remote
from pydoit.results import Result
from pydoit.session import Options, Session
from pydoit.settings import RemoteSettings
from pydoit.stages import STAGES
from pydoit.store import Blob, Store
from pydoit.workspace import open_workspace

WORK = "import sys; from pydoit.farm.work import work; sys.stdout.buffer.write(work(sys.stdin.buffer.read()))"


class Processes:
    """A cluster whose machines are processes with a store of their own."""

    def __init__(self, store: Path, held: Mapping[str, float] | None = None, **variables: str) -> None:
        self.held = held or {"CPU": 2.0}
        self.environment = {**os.environ, "MODELBUILD_CACHE": str(store), **variables}
        del self.environment["MODELBUILD_CACHE_SECRET"]  # the cluster's machines hold no keys
        self.jobs: list[Job] = []
        self.cancelled = 0
        self.is_deaf = False

    def resources(self) -> Mapping[str, float]:
        return self.held

    def submit(self, job: bytes, resources: Mapping[str, float]) -> Processes.Running:
        self.jobs.append(decode_job(job))
        return Processes.Running(self, job)

    class Running:
        def __init__(self, cluster: Processes, job: bytes) -> None:
            self.cluster = cluster
            self.process = subprocess.Popen(
                [sys.executable, "-c", WORK], env=cluster.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self.answers: list[bytes] = []
            self.thread = threading.Thread(target=lambda: self.answers.append(self.process.communicate(job)[0]))
            self.thread.start()

        def wait(self, seconds: float) -> bytes | None:
            self.thread.join(seconds)
            if self.thread.is_alive() or self.cluster.is_deaf:
                return None
            if self.process.returncode:
                raise ClusterError("the machine is gone")
            return self.answers[0]

        def cancel(self) -> None:
            self.cluster.cancelled += 1
            self.process.kill()
            self.thread.join()


class Site:
    """A workspace, a remote, and a cluster; stages are done by the stand-ins of the fault layer."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.workspace: TestWorkspace = make_workspace(folder)
        patch.setenv("MODELBUILD_CACHE", str(self.workspace.cache))
        patch.setenv("MODELBUILD_CACHE_SECRET", "a secret of this test")
        self.plan: dict[str, Any] = {"at": -1, "kind": "", "roots": []}
        patch.setenv("PYTHONPATH", fault_layer.prepare(folder / "stand-in", self.plan)["PYTHONPATH"])
        patch.setattr("pydoit.machine._file", lambda name: folder / f"{name}.lock")
        self.cluster = Processes(folder / "elsewhere")
        self.remote = RemoteSettings(f"file://{folder}/remote", "read-write")

    def session(self) -> Session:
        session = Session(open_workspace(self.workspace.root), Options(), tell=lambda _: None)
        remote = open_remote(self.remote, session.store, lambda _: None)
        session.__dict__["remote"] = None  # nothing is looked up there: what comes, comes by the cluster
        session.__dict__["farm"] = Farm(self.cluster, remote, self.remote, self.workspace.root, session.store.stats)
        session.open(["tiny"])
        assert not session.broken
        return session

    def build(self, session: Session | None = None) -> dict[str, Result]:
        session = session or self.session()
        process.reset()
        with session.store.in_use():
            return {stage: session.build("tiny", stage, lambda *_: None) for stage in STAGES}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def published(site: Site) -> dict[str, bytes]:
    folder = site.workspace.root / "artifacts/tiny"
    return {name: (folder / name).read_bytes() for name in ("lib.so", "weights/model.safetensors", "manifest.json")}


def test_a_cluster_builds_what_this_machine_builds(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = site.build()
    assert {stage: result.status for stage, result in built.items()} == {**dict.fromkeys(STAGES, "built"), "fetch": "hit"}
    assert all(result.reason.startswith("on the cluster: ") for stage, result in built.items() if stage != "fetch")
    assert [job.stage for job in site.cluster.jobs] == list(STAGES[1:])
    assert len(list((tmp_path / "elsewhere").glob("actions/*/*.json"))) == len(STAGES) - 1
    assert not list((tmp_path / "elsewhere").glob("tmp/*"))
    assert site.cluster.jobs[0].code.keys() == {"recipes/tiny_net.py", "recipes/parts.py"}

    again = site.build()
    assert {result.status for result in again.values()} == {"hit"}
    assert len(site.cluster.jobs) == len(STAGES) - 1

    (tmp_path / "alone").mkdir()
    alone = Site(tmp_path / "alone", monkeypatch)
    session = alone.session()
    session.__dict__["farm"] = None
    alone.build(session)
    assert published(alone) == published(site)


def test_a_machine_with_other_tools_tells_its_own_key(site: Site, tmp_path: Path) -> None:
    site.cluster = Processes(tmp_path / "elsewhere", LDFLAGS="-Wl,-O1")
    built = site.build()
    assert all(result.is_good for result in built.values())
    again = site.build()
    assert {stage for stage, result in again.items() if result.status != "hit"} == set()
    assert again["compile"].reason == "from another machine: environment: none -> {}; environment.LDFLAGS: -Wl,-O1 -> none"
    assert again["compile"].key == built["compile"].key
    assert site.session().store.lookup(str(built["compile"].key)) is not None


def test_what_the_cluster_had_already_is_brought_only(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.build()
    (tmp_path / "other").mkdir()
    other = Site(tmp_path / "other", monkeypatch)
    other.cluster, other.remote = site.cluster, site.remote
    entries = {path: path.stat().st_mtime_ns for path in (tmp_path / "elsewhere").glob("actions/*/*.json")}
    assert all(result.is_good for result in other.build().values())
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "elsewhere").glob("actions/*/*.json")} == entries


class Unreachable(Processes):
    def resources(self) -> Mapping[str, float]:
        raise ClusterError("nobody answers")


def test_without_the_cluster_or_the_remote_stages_run_here(site: Site, tmp_path: Path) -> None:
    site.cluster = Unreachable(tmp_path / "elsewhere")
    assert all(result.is_good for result in site.build().values())
    assert not site.cluster.jobs


def test_a_dead_remote_is_no_fault_of_the_build(site: Site, tmp_path: Path) -> None:
    class Dead(MemoryTransport):
        def size(self, name: str) -> int | None:
            raise OSError("503")

    session = site.session()
    remote = open_remote_of(session.store, Dead(), SECRET)
    session.__dict__["farm"] = replace(session.__dict__["farm"], remote=remote)
    assert all(result.is_good for result in site.build(session).values())
    assert [job.stage for job in site.cluster.jobs] in ([], ["tokenizer"])  # which reads nothing


def test_a_machine_that_is_lost(site: Site, tmp_path: Path) -> None:
    site.cluster.environment["PYTHONPATH"] = str(tmp_path / "nowhere")
    site.cluster.environment["PYTHONHOME"] = "/nonexistent"  # its Python does not even start
    assert all(result.is_good for result in site.build().values())


def test_a_stage_that_fails_there(site: Site) -> None:
    fault_layer.prepare(site.folder / "stand-in", {**site.plan, "worker": "compile", "kind": "ENOSPC"})
    built = site.build()
    assert (built["compile"].status, built["compile"].reason) == ("failed", "OSError: [Errno 28] No space left on device")
    assert built["package"].status == "skipped"
    log = site.workspace.root / "artifacts/.modelbuild/logs/tiny/compile.log"
    assert "No space left on device" in log.read_text()


def test_another_version_there_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_version(*arguments: Any) -> Job:
        job = decode_job(encode_job(real(*arguments)))
        return replace(job, document={**job.document, "code": {"stages/import_.py": "0" * 64}})

    real = Job
    monkeypatch.setattr("pydoit.farm.executor.Job", other_version)
    failed = site.build()["import"]
    assert failed.status == "failed"
    assert (
        failed.reason
        == "on the cluster: another version of doit-modelbuild is installed there; install the same on all machines"
    )


def test_an_interrupt_ends_the_job(site: Site) -> None:
    site.cluster.is_deaf = True
    session = site.session()
    session.build("tiny", "fetch", lambda *_: None)
    threading.Timer(1.0, process.stop_all).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            session.build("tiny", "import", lambda *_: None)
    finally:
        process.reset()
    assert site.cluster.cancelled == 1


def node(stage: str, kind: str) -> Node:
    arch = "sm_90" if kind == "cuda" else "x86-64-v3"
    return Node("r", stage, {"target": {"kind": kind, "arch": arch, "threads": None}}, {})


def test_what_stages_need() -> None:
    gpu = {"CPU": 1.0, "GPU": 1.0, "gpu_arch:sm_90": 1.0}
    assert needs(node("verify", "cuda")) == needs(node("profile", "cuda")) == gpu
    assert needs(node("compile", "cuda")) == needs(node("profile", "cpu")) == {"CPU": 1.0}


def test_a_gpu_that_the_cluster_lacks(site: Site) -> None:
    farm = site.session().farm
    assert farm is not None
    assert farm.lacking(node("verify", "cuda")) == "needs GPU, gpu_arch:sm_90, which the cluster does not have"
    site.cluster.held = {"CPU": 8.0, "GPU": 2.0, "gpu_arch:sm_90": 2.0}
    assert farm.lacking(node("verify", "cuda")) == ""


def test_jobs_and_answers_are_json() -> None:
    blob = Blob("a" * 64, 3)
    job = Job("compile", "compile", {"stage": "compile"}, {"import": {"x": blob}}, {"records": blob}, {}, "s3://b/p", 5.0)
    assert decode_job(encode_job(job)) == job
    assert job.settings == RemoteSettings("s3://b/p", "read-write", (), 5.0)
    answer = Answer("failed", "because", None, {"x": 1.5}, 2.0, "log")
    assert decode_answer(encode_answer(answer)) == answer
    with pytest.raises(ValueError, match="another version"):
        decode_job(encode_job(job).replace(b'"schema":1', b'"schema":2'))


def test_a_store_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pydoit.farm.work import store_folder

    monkeypatch.setenv("MODELBUILD_CACHE", str(tmp_path))
    assert store_folder() == Store(tmp_path).root
    monkeypatch.delenv("MODELBUILD_CACHE")
    assert store_folder().name == "doit-modelbuild"
