"""Tuning through a real tracker and a real server on this machine, and what goes wrong with either."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from conftest import TestWorkspace, make_workspace

from pydoit.errors import UserError
from pydoit.farm import tracker
from pydoit.farm.tracker import Device, TrackerError, require_server, server_keys, take_server

ARCH = "x86-64-v3"


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port


def wait_for(done: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of Python; it is gone afterwards with all that it started."""
    process = subprocess.Popen(
        [sys.executable, "-c", *arguments], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


# What the programs tvm.exec.rpc_tracker and rpc_server run in a child, without the parent that imports TVM a second time.
TRACKER = """
import sys
from tvm.rpc.tracker import PopenTrackerServerState
state = PopenTrackerServerState("127.0.0.1", int(sys.argv[1]), int(sys.argv[1]) + 1, silent=True)
"""
SERVER = """
import sys
from tvm.rpc.server import PopenRPCServerState
port, tracker = int(sys.argv[1]), sys.argv[2].split(":")
state = PopenRPCServerState("127.0.0.1", port, port + 1, tracker_addr=(tracker[0], int(tracker[1])), key=sys.argv[3], silent=True)
"""


def serving(address: str, key: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return running(SERVER, str(free_port()), address, key)


def keys_at(address: str) -> list[str] | None:
    """The tracker's keys; None until it answers."""
    try:
        return server_keys(address)
    except TrackerError:
        return None


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    port = free_port()
    with running(TRACKER, str(port)):
        address = f"127.0.0.1:{port}"
        wait_for(lambda: keys_at(address) is not None)
        yield address


@pytest.fixture(scope="module", autouse=True)
def board(address: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server for a test that kills it; one of another key serves all others."""
    with serving(address, ARCH), serving(address, "board") as board:
        wait_for(lambda: set(keys_at(address) or ()) == {ARCH, "board"})
        yield board


@contextmanager
def silent(answer: bytes) -> Iterator[str]:
    """The address of something that listens, says `answer` to the first connection, and no more."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as held:

        def serve() -> None:
            held.enter_context(listening.accept()[0]).sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    workspace = make_workspace(tmp_path_factory.mktemp("tracker"))
    workspace.edit("recipes/tiny.toml", 'preset = "O1"', 'preset = "O2"')
    workspace.edit(
        "recipes/tiny.toml", "[verify]",
        f'[target]\narch = "{ARCH}"\n\n[tune]\nrecords = "recipes/tuning/tiny.json"\ntrials = 1\n\n[kernels]\nconv2d = "tvm"\nmatmul = "tvm"\n\n[verify]',
    )  # fmt: skip
    return workspace


def test_a_model_is_tuned_on_the_device_and_built_with_its_records(address: str, site: TestWorkspace) -> None:
    site.write("modelbuild.toml", f'schema = 1\n\n[executor]\ntracker = "{address}"\n')
    kept = {
        "task": "matmul",
        "key": "0" * 64,
        "decisions": {"provider": "onednn"},
        "microseconds": 1.0,
        "default_microseconds": 2.0,
    }
    site.write("recipes/tuning/tiny.json", json.dumps({"schema": 1, "target": {"arch": ARCH}, "records": [kept]}))
    done = site.doit("tune", "tiny", "--set", 'tune.budget="60s"')
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"measuring on {ARCH} of the tracker {address}" in done.stdout + done.stderr
    document = json.loads((site.root / "recipes/tuning/tiny.json").read_text())
    assert document["target"] == {"arch": ARCH, "device": ARCH, "threads": 0}
    assert kept in document["records"]
    document["records"].remove(kept)
    assert document["records"]
    assert all(0 < record["microseconds"] <= record["default_microseconds"] for record in document["records"])
    built = site.doit("build", "tiny", "--stages", "compile", MODELBUILD_TRACKER="127.0.0.1:1")  # a build asks no tracker
    assert built.returncode == 0, built.stdout + built.stderr
    (entry,) = (
        json.loads(path.read_bytes())
        for path in site.cache.glob("actions/*/*.json")
        if json.loads(path.read_bytes())["stage"] == "tune"
    )
    assert entry["measurements"]["matched"] == len(document["records"])


def test_faults_are_told_in_one_line(address: str, site: TestWorkspace) -> None:
    def fault(*arguments: str, **variables: str) -> str:
        done = site.doit("tune", "tiny", *arguments, **variables)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        return done.stderr

    here = {"MODELBUILD_TRACKER": address}
    assert "Connection refused" in fault(MODELBUILD_TRACKER=f"127.0.0.1:{free_port()}")
    assert f"no server with the key 'boards'; it has board, {ARCH}" in fault(**here, MODELBUILD_TRACKER_KEY="boards")
    assert 'arch = "native" is this machine\'s CPU' in fault("--set", 'target.arch="native"', **here)
    assert "MODELBUILD_TRACKER: 'board' is no address" in fault(MODELBUILD_TRACKER="board")


def test_an_interrupt_ends_all_of_it(address: str, site: TestWorkspace) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "doit", "tune", "tiny", "--fresh", "--trials", "12"], cwd=site.root, text=True,
        env=site.environment(MODELBUILD_TRACKER=address), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        while "measuring on" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode == 130
        wait_for(lambda: not any(str(site.cache).encode() in command_line(path) for path in Path("/proc").glob("[0-9]*")))
    finally:
        kill(process)
    wait_for(lambda: ARCH in server_keys(address))


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("answer", "fault"), [(b"", "has not answered for"), (b"HTTP/1.1 400 Bad Request", "something else listens there")]
)
def test_what_is_no_tracker(answer: bytes, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "ANSWER_SECONDS", 0.5)
    with silent(answer) as there, pytest.raises(UserError, match=fault):
        require_server(Device(there, ARCH))


SEARCH = """
import sys
address, *folders = sys.argv[1:]
sys.path[:0] = folders
from pydoit.farm import tracker
tracker.LOST_SECONDS = 2.0
from pydoit.kernels import timer
from pydoit.errors import StageError
from pydoit.kernels.search import search
from relax_modules import TARGET
from test_search import small_product


class Damaging(timer.RemoteTimer):
    def seconds(self, function, path):
        if path.name.endswith("-1.so"):
            path.write_bytes(b"no library")
        return super().seconds(function, path)


class Waiting(timer.RemoteTimer):
    def seconds(self, function, path):
        print("ready", flush=True)
        sys.stdin.readline()
        return super().seconds(function, path)


def find(kind):
    try:
        on = kind(tracker.Device(address, "board"), "x86-64-v3", 1, print)
        print("found", len(search(small_product(), TARGET, [], 3, None, print, None, on)))
    except StageError as error:
        print(error)


find(Damaging)
timer.RUN_SECONDS = 0.001  # no session is so short
find(timer.RemoteTimer)
timer.RUN_SECONDS = 20.0
find(Waiting)
"""


def test_a_search_survives_its_candidates_and_ends_with_its_device(address: str, board: subprocess.Popen[bytes]) -> None:
    tests = Path(__file__).resolve().parents[1]
    searching = subprocess.Popen(
        [sys.executable, "-c", SEARCH, address, str(tests), str(tests / "kernels")], text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert searching.stdout is not None
        lines = []
        while not lines or lines[-1] != "ready\n":
            assert searching.poll() is None
            lines.append(searching.stdout.readline())
        told = "".join(lines)
        assert "a candidate failed on the device" in told
        assert "found 1" in told
        assert "does not run what is compiled here" in told
        kill(board)
        wait_for(lambda: "board" not in server_keys(address))
        told = searching.communicate("\n" * 20, timeout=60)[0]
        assert f"the tracker {address} has had no server with the key 'board' for 2 s; what was found is kept" in told
    finally:
        kill(searching)


def test_waiting_for_a_server_has_an_end(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "LOST_SECONDS", 1.0)
    monkeypatch.setattr(tracker, "BUSY_SECONDS", 1.0)
    monkeypatch.setattr(tracker, "LOOK_SECONDS", 0.2)
    with pytest.raises(TrackerError, match="no server with the key 'gone' for 1 s"):
        take_server(Device(address, "gone"))
    take_server(Device(address, ARCH))
    with pytest.raises(TrackerError, match="all are busy"):
        take_server(Device(address, ARCH))
