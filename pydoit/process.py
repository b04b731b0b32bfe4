"""Starts a worker, forwards its progress, waits for it, and kills it with all its children on an interrupt."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydoit import machine
from pydoit.stages import MEASURING
from pydoit.tools import worker_environment
from pydoit.worker import PROGRESS_VARIABLE

TICK_SECONDS = 0.2

_running: set[subprocess.Popen[bytes]] = set()
_guard = threading.Lock()
_stopping = threading.Event()


@dataclass(frozen=True)
class Outcome:
    """What a worker left: its result, or how it ended without one."""

    result: dict[str, Any]
    seconds: float


def make_job(stage: str, spec: Mapping[str, Any], inputs: Mapping[str, Path], out: Path, root: Path) -> dict[str, Any]:
    """What a worker is told: the stage, its spec, folders or files by input name, where to write, the workspace."""
    places = {name: str(path) for name, path in inputs.items()}
    return {"stage": stage, "spec": dict(spec), "inputs": places, "out": str(out), "root": str(root)}


def run_worker(job: dict[str, Any], folder: Path, log: Path, tick: Callable[[float, str], None]) -> Outcome:
    """Run `job` in `folder`; its output goes to `log`; `tick(seconds, progress)` is called while it runs."""
    path = folder / "job.json"
    path.write_text(json.dumps(job))
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    reading, writing = os.pipe()
    try:
        process = _start(path, folder, log, writing)
        os.close(writing)
        _follow(process, reading, started, tick)
    finally:
        os.close(reading)
    seconds = time.monotonic() - started
    if _stopping.is_set():
        raise KeyboardInterrupt
    try:
        return Outcome(json.loads((folder / "result.json").read_bytes()), seconds)
    except (OSError, ValueError):
        return Outcome({"status": "failed", "reason": _ending(process.returncode)}, seconds)


def measured_alone(stage: str, spec: Mapping[str, Any]) -> bool:
    """Whether other work on the machine would distort what the stage measures."""
    return stage in MEASURING or spec.get("on_miss") == "tune"


def run_in_turn(job: dict[str, Any], alone: bool, folder: Path, log: Path, tick: Callable[[float, str], None]) -> Outcome:
    """`run_worker` when it is its turn on this machine."""

    def waiting(seconds: float) -> None:
        tick(seconds, "waiting to measure alone" if alone else "waiting for a measurement on this machine")

    with machine.measuring(waiting) if alone else machine.working(waiting):
        return run_worker(job, folder, log, tick)


def is_stopping() -> bool:
    """Whether the command was interrupted."""
    return _stopping.is_set()


def stop_all() -> None:
    """Kill every running worker with its children; no further one starts its work."""
    _stopping.set()
    with _guard:
        for process in _running:
            _kill(process)


def reset() -> None:
    """Allow workers again (a new command in the same process)."""
    _stopping.clear()


def _start(path: Path, folder: Path, log: Path, writing: int) -> subprocess.Popen[bytes]:
    environment = {**worker_environment(), PROGRESS_VARIABLE: str(writing), "TMPDIR": str(folder)}
    command = [sys.executable, "-u", "-m", "pydoit.worker", str(path)]
    with log.open("wb") as output, _guard:
        if _stopping.is_set():
            raise KeyboardInterrupt
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
            pass_fds=(writing,), start_new_session=True,
        )  # fmt: skip
        _running.add(process)
    return process


def _follow(process: subprocess.Popen[bytes], reading: int, started: float, tick: Callable[[float, str], None]) -> None:
    text, pending, is_open = "", b"", True
    try:
        while process.poll() is None:
            if is_open and select.select([reading], [], [], TICK_SECONDS)[0]:
                data = os.read(reading, 65536)
                is_open = bool(data)
                *lines, pending = (pending + data).split(b"\n")
                text = lines[-1].decode(errors="replace") if lines else text
            elif not is_open:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(TICK_SECONDS)
            tick(time.monotonic() - started, text)
    finally:
        _kill(process)  # what the worker started and left behind, or on an interrupt the worker itself
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        with _guard:
            _running.discard(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        hint = "; out of memory?" if name == "SIGKILL" else ""
        return f"the worker was killed by {name}{hint}; see the log"
    return f"the worker ended with status {status} and no result; see the log"
