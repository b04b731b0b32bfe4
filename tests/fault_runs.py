"""A driver of builds under faults: whatever happens, a plain build afterwards gives what an undisturbed one gives."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fault_layer
import psutil
from conftest import TestWorkspace, make_workspace

SECONDS = 60.0
WORKER_STAGES = ("import", "optimize", "tune", "compile", "weights", "verify", "profile", "package")
SCENES = ("one", "worker", "lock", "gc", "two", "hosts")
WEIGHTS = (60, 8, 8, 8, 8, 8)
PUBLISHED = ("lib.so", "weights/model.safetensors", "manifest.json", "provenance.json", "sbom.json")


@dataclass
class Run:
    """One seeded run, and what it came to."""

    seed: int
    scene: str
    kind: str
    at: int
    status: int = 0
    met: str = ""
    faults: tuple[str, ...] = ()


class Pipeline:
    """The tiny recipe with stages that take no time, and what an undisturbed build of it gives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.template = make_workspace(folder / "template")
        recorded = make_workspace(folder / "undisturbed")
        plan = {"at": -1, "kind": "", "record": True}
        done = build(recorded, self._environment(recorded, "run", plan))
        assert done.returncode == 0, done.stdout + done.stderr
        self.sites: list[list[str]] = json.loads((folder / "undisturbed/run/sites.json").read_text())
        self.wanted = published(recorded)
        assert build(recorded, self._environment(recorded, "again", {"at": -1, "kind": ""})).returncode == 0

    def run(self, seed: int) -> Run:
        """Build under a fault, then plainly; the faults found, if any."""
        draw = random.Random(seed)
        scene = draw.choices(SCENES, WEIGHTS)[0]
        run = Run(seed, scene, draw.choice(fault_layer.KINDS), self._place(draw))
        folder = self.folder / f"run{seed}"
        workspace = TestWorkspace(folder / "workspace", folder / "cache")
        shutil.copytree(self.template.root, workspace.root)
        if draw.random() < 0.3:  # part of it is there already
            build(
                workspace,
                self._environment(workspace, "before", {"at": -1, "kind": ""}),
                "--stages",
                draw.choice(WORKER_STAGES),
            )
        getattr(self, f"_{scene}")(run, workspace, draw)
        run.faults = tuple(self._afterwards(workspace))
        if not run.faults:
            shutil.rmtree(folder)
        return run

    def _place(self, draw: random.Random) -> int:
        """An operation: each place of the code is as likely as any other, however often it is reached."""
        site = draw.choice(sorted({tuple(site) for site in self.sites}))
        return draw.choice([number for number, found in enumerate(self.sites) if tuple(found) == site])

    def _environment(self, workspace: TestWorkspace, name: str, plan: dict[str, Any]) -> dict[str, str]:
        place = workspace.root.parent
        roots = [str(workspace.cache), str(workspace.root / "artifacts")]
        return workspace.environment(**fault_layer.prepare(place / name, {"roots": roots, **plan}))

    def _one(self, run: Run, workspace: TestWorkspace, draw: random.Random) -> None:
        environment = self._environment(workspace, "run", {"at": run.at, "kind": run.kind, "seed": run.seed})
        run.status = build(workspace, environment).returncode
        met = workspace.root.parent / "run/met.json"
        run.met = "{operation} in {caller}".format(**json.loads(met.read_text())) if met.exists() else ""

    def _worker(self, run: Run, workspace: TestWorkspace, draw: random.Random) -> None:
        plan = {"at": -1, "kind": run.kind, "worker": draw.choice(WORKER_STAGES)}
        run.met = f"worker of {plan['worker']}"
        run.status = build(workspace, self._environment(workspace, "run", plan)).returncode

    def _lock(self, run: Run, workspace: TestWorkspace, draw: random.Random) -> None:
        """Somebody holds the store for itself, as gc does, or the machine, and dies."""
        place = workspace.root.parent / "run"
        environment = self._environment(workspace, "run", {"at": run.at, "kind": "slow"})
        path = draw.choice([workspace.cache / "locks/store.lock", place / "turn.lock", place / "work.lock"])
        path.parent.mkdir(parents=True, exist_ok=True)
        holder = hold(path)
        process = start(workspace, environment)
        time.sleep(draw.uniform(0.1, 1.0))
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        run.met, run.status = f"holder of {path.name} dies", wait(process)

    def _gc(self, run: Run, workspace: TestWorkspace, draw: random.Random) -> None:
        """Garbage collection down to nothing, and another one that is killed, while the build runs."""
        environment = self._environment(workspace, "run", {"at": run.at, "kind": run.kind, "seconds": 0.05})
        process = start(workspace, environment)
        collectors = []
        for _ in range(3):
            time.sleep(draw.uniform(0.05, 0.6))
            collectors.append(subprocess.Popen(
                [sys.executable, "-m", "doit", "cache", "gc", "--max-size", "0MB"], cwd=workspace.root,
                env=workspace.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            ))  # fmt: skip
        collectors[0].send_signal(signal.SIGKILL)
        run.met, run.status = "gc meanwhile", wait(process)
        for collector in collectors:
            wait(collector)

    def _two(self, run: Run, workspace: TestWorkspace, draw: random.Random) -> None:
        """Two builds of one workspace, one of them under the fault."""
        machine = {"machine": str(workspace.root.parent)}
        first = start(workspace, self._environment(workspace, "run", {"at": run.at, "kind": run.kind, **machine}))
        second = start(workspace, self._environment(workspace, "other", {"at": -1, "kind": "", **machine}))
        run.met, run.status = "beside another build", wait(first)
        assert wait(second) == 0, f"seed {run.seed}: the build beside a disturbed one failed"

    def _hosts(self, run: Run, workspace: TestWorkspace, draw: random.Random) -> None:
        """Two machines, a workspace each, one shared store, and no locks between them."""
        far = TestWorkspace(workspace.root.parent / "far", workspace.cache)
        shutil.copytree(self.template.root, far.root)
        plan = {"at": run.at, "kind": run.kind, "locks": False, "host": "one"}
        first = start(workspace, self._environment(workspace, "run", plan))
        time.sleep(draw.uniform(0, 0.5))
        second = start(far, self._environment(far, "other", {"at": -1, "kind": "", "locks": False, "host": "two"}))
        run.met, run.status = "beside another host", wait(first)
        assert wait(second) == 0, f"seed {run.seed}: the build on the other host failed"
        assert published(far) == self.wanted, f"seed {run.seed}: the other host published something else"

    def _afterwards(self, workspace: TestWorkspace) -> list[str]:
        for path in workspace.root.parent.rglob(".*.tmp"):  # an hour has passed
            os.utime(path, (time.time() - 3600,) * 2)
        for path in workspace.cache.glob("tmp/*"):
            os.utime(path, (time.time() - 86400 * 2,) * 2)
        done = build(workspace, self._environment(workspace, "plain", {"at": -1, "kind": ""}))
        found = [] if done.returncode == 0 else [f"the plain build ends with {done.returncode}: {done.stdout}{done.stderr}"]
        if "Traceback" in done.stderr:
            found.append(done.stderr)
        try:
            different = [name for name, digest in published(workspace).items() if digest != self.wanted[name]]
        except OSError as error:
            different = [str(error)]
        found += [f"{name} differs" for name in different]
        found += [f"left: {path}" for path in leftovers(workspace)]
        return found + [f"held: {path}" for path in held(workspace)] + [f"runs: {line}" for line in workers(workspace)]


def start(workspace: TestWorkspace, environment: dict[str, str], *options: str) -> subprocess.Popen[bytes]:
    output = (workspace.root.parent / f"output{time.monotonic_ns()}").open("wb")
    with output:
        return subprocess.Popen(
            [sys.executable, "-m", "doit", "build", "tiny", *options], cwd=workspace.root, env=environment,
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip


def wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def build(workspace: TestWorkspace, environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "doit", "build", "tiny", *options], cwd=workspace.root, env=environment,
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip


def published(workspace: TestWorkspace) -> dict[str, bytes]:
    return {name: (workspace.root / "artifacts/tiny" / name).read_bytes() for name in PUBLISHED}


HOLDER = "import sys, time\nfrom pathlib import Path\nfrom pydoit.locks import locked\nwith locked(Path(sys.argv[1])):\n    print(flush=True)\n    time.sleep(60)\n"


def hold(path: Path) -> subprocess.Popen[bytes]:
    """A process that holds a lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


def leftovers(workspace: TestWorkspace) -> list[Path]:
    """Temporary files and folders that nobody will remove."""
    store = [*workspace.cache.glob("tmp/*"), *workspace.cache.glob("partial/*"), *workspace.cache.glob("actions/*/.*")]
    return [*store, *(path for path in workspace.root.rglob("*.tmp"))]


def held(workspace: TestWorkspace) -> list[Path]:
    """Lock files that a process still holds."""
    found = []
    for path in [*workspace.cache.rglob("*.lock"), *workspace.root.rglob("*.lock")]:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(path)
    return found


def workers(workspace: TestWorkspace) -> list[str]:
    """Processes that a build has left behind."""
    lines = [" ".join(item.info["cmdline"] or ()) for item in psutil.process_iter(["cmdline"])]
    return [line for line in lines if "pydoit.worker" in line and str(workspace.cache) in line]
