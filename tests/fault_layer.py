"""Faults under a real `doit build`: loaded into its processes before anything else, it counts what they do to files and,
at one of these operations, does what a machine does.

A run folder on PYTHONPATH holds sitecustomize.py, which installs this module, and `fault.json`, the plan: `at` (number of
the operation, -1 for none), `kind`, `roots` (folders that count), `worker` (a stage whose worker fails instead), `locks`
(false: flock always succeeds, as on a shared folder without lock service), `host`. The work of the stages is replaced by bytes
that follow from their inputs, so that a build takes a second; everything else is as it is.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).parents[1])
KINDS = ("kill", "ENOSPC", "EIO", "EACCES", "truncate", "clock", "slow")
JUMPS = (-400 * 86400.0, 400 * 86400.0)
BOOT_ID = "/proc/sys/kernel/random/boot_id"
SIZES = {"params.safetensors": 50_000, "lib.so": 200_000, "model.safetensors": 100_000}
OUTPUTS = {
    "import": ("module.json", "spec.json", "params.safetensors"),
    "optimize": ("module.json", "transform.json", "spec.json", "passes.json"),
    "tune": ("records.json",),
    "compile": ("lib.so",),
    "weights": ("model.safetensors",),
    "package": ("lib.so", "weights/model.safetensors", "manifest.json"),
}

TEMPLATE = """\
import importlib.util
spec = importlib.util.spec_from_file_location("fault_layer", {layer!r})
layer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(layer)
layer.install({folder!r})
"""


def prepare(folder: Path, plan: dict[str, Any]) -> dict[str, str]:
    """Write a run folder; the environment that loads it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(TEMPLATE.format(layer=__file__, folder=str(folder)))
    (folder / "fault.json").write_text(json.dumps(plan))
    return {"PYTHONPATH": os.pathsep.join((str(folder), ROOT)), "PYTHONDONTWRITEBYTECODE": "1"}


def install(folder: str) -> None:
    """Called by sitecustomize in each Python process of the build."""
    arguments = " ".join(sys.orig_argv)
    plan = json.loads(Path(folder, "fault.json").read_text())
    if "pydoit.worker" in arguments:
        _stand_in(plan)
    elif " doit " in arguments:
        Layer(plan, Path(folder)).install()


class Layer:
    """Wraps the calls by which Python reaches the file system."""

    def __init__(self, plan: dict[str, Any], folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.count = 0
        self.roots = tuple(plan["roots"])
        self.random = random.Random(plan.get("seed", 0))
        self.sites: list[tuple[str, str]] = []
        self.is_slow = self.is_met = False
        self.jump = 0.0

    def install(self) -> None:
        for name in ("replace", "rename", "unlink", "remove", "mkdir", "rmdir", "chmod", "utime", "symlink", "link", "scandir"):
            self._wrap(os, name)
        self._wrap(os, "fsync", by_descriptor=True)
        self._wrap(os, "open")
        self._wrap(os, "sendfile", by_descriptor=True)
        self._wrap_open()
        self._wrap_clock()
        if not self.plan.get("locks", True):
            fcntl.flock = lambda *_: None
        self._redirect_machine_locks()

    def meet(self, name: str, path: Any) -> None:
        """One operation on a file: counted, and where its turn has come, spoiled."""
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if not str(text).startswith(self.roots):
            return
        number, self.count = self.count, self.count + 1
        if self.plan.get("record"):
            self.sites.append((name, _caller()))
            (self.folder / "sites.json").write_text("") if number == 0 else None
        if self.is_slow:
            time.sleep(self.random.random() * 0.01)
        if number == self.plan["at"] and not self.is_met:
            self.is_met = True
            self.note(name, str(text))
            self._act(name, path)

    def note(self, name: str, path: str) -> None:
        with REAL_OPEN(self.folder / "met.json", "w") as file:
            file.write(json.dumps({"operation": name, "path": path, "caller": _caller()}))

    def _act(self, name: str, path: Any) -> None:
        kind = self.plan["kind"]
        if kind == "truncate":
            self._truncate(path)
        if kind in ("kill", "truncate"):
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "clock":
            self.jump = self.random.choice(JUMPS)
        elif kind == "slow":
            self.is_slow = True
        else:
            number = getattr(errno, kind)
            raise OSError(number, os.strerror(number), str(path))

    def _truncate(self, path: Any) -> None:
        """Data that never reached the disk though the file's name did: half of it is lost."""
        with contextlib.suppress(OSError):
            Path(path).chmod(0o644)
            os.truncate(path, Path(path).stat().st_size // 2)

    def _wrap(self, module: Any, name: str, by_descriptor: bool = False) -> None:
        real = getattr(module, name)

        def wrapped(path: Any, *arguments: Any, **named: Any) -> Any:
            place = path
            if by_descriptor and isinstance(path, int):
                with contextlib.suppress(OSError):
                    place = Path(f"/proc/self/fd/{path}").readlink()
            self.meet(name, place)
            return real(path, *arguments, **named)

        setattr(module, name, wrapped)

    def _wrap_open(self) -> None:
        layer = self

        class Writer(io.BufferedWriter):
            place = ""

            def write(self, data: Any) -> int:
                layer.meet("write", self.place)
                return super().write(data)

        def opened(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            if str(file) == BOOT_ID and layer.plan.get("host"):
                return io.StringIO(layer.plan["host"])
            layer.meet("open to write" if set(mode) & set("wax+") else "open", file)
            if mode == "wb" and not arguments and str(file).startswith(layer.roots):
                writer = Writer(io.FileIO(file, "w"))
                writer.place = os.fspath(file)
                return writer
            return REAL_OPEN(file, mode, *arguments, **named)

        import builtins

        builtins.open = io.open = opened

    def _wrap_clock(self) -> None:
        real, real_ns = time.time, time.time_ns
        time.time = lambda: real() + self.jump
        time.time_ns = lambda: real_ns() + int(self.jump * 1e9)

    def _redirect_machine_locks(self) -> None:
        """Runs side by side on this machine do not wait for one another, nor for other builds, unless they are to."""
        import atexit

        import pydoit.machine

        place = Path(self.plan.get("machine", self.folder))

        def file(name: str) -> Path:
            path = place / f"{name}.lock"
            path.touch()
            return path

        pydoit.machine._file = file
        if self.plan.get("record"):
            atexit.register(lambda: (self.folder / "sites.json").write_text(json.dumps(self.sites)))


REAL_OPEN: Callable[..., Any] = io.open


def _caller() -> str:
    """The function of ours that did it."""
    for frame in reversed(traceback.extract_stack(limit=30)):
        if "/pydoit/" in frame.filename:
            return f"{Path(frame.filename).stem}.{frame.name}"
    return "doit"


def _stand_in(plan: dict[str, Any]) -> None:
    """Let the worker make bytes that follow from its inputs."""
    import pydoit.stages

    class Spec:
        @staticmethod
        def model_validate(value: Any) -> Any:
            return value

    def load_stage(name: str) -> Any:
        def run(spec: Any, inputs: dict[str, Path], out: Path) -> dict[str, Any]:
            if plan.get("worker") == name:
                _fail_as_worker(plan["kind"], out)
            time.sleep(plan.get("seconds", 0.0))
            return made(name, spec, inputs, out)

        return type("Stage", (), {"Spec": Spec, "run": staticmethod(run)})

    pydoit.stages.load_stage = load_stage


def _fail_as_worker(kind: str, out: Path) -> None:
    (out / "half").write_bytes(b"half")
    if kind in ("ENOSPC", "EIO", "EACCES"):
        number = getattr(errno, kind)
        raise OSError(number, os.strerror(number))
    if kind in ("kill", "truncate"):
        os.kill(os.getpid(), signal.SIGKILL)
    (out / "half").unlink()


def made(stage: str, spec: Any, inputs: dict[str, Path], out: Path) -> dict[str, Any]:
    """Write a stage's outputs: a stream of bytes from the digest of everything that it was given."""
    found = hashlib.sha256(json.dumps([stage, spec], sort_keys=True).encode())
    for name, place in sorted(inputs.items()):
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file():
                found.update(f"{name}/{path.name}\0".encode() + path.read_bytes())
    for name in OUTPUTS.get(stage, ()):
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(found.hexdigest() + name).randbytes(SIZES.get(path.name, 500)))
    if stage == "profile":
        return {"latency_ms": {"median": 1.0}}
    return {"max_abs": 0.0, "cosine": 1.0, "samples": 2} if stage == "verify" else {}
