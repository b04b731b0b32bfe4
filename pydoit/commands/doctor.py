"""doit doctor: what this machine and installation have and lack, each finding with its remedy."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydoit import target, tools
from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD, FORMAT, TRACEBACK, ModelbuildCommand
from pydoit.errors import ModelBuildError
from pydoit.store import Store
from pydoit.workspace import open_workspace

TVM_PAIRS = {"0.27.0.post1": "0.1.14.post0"}
MIN_FREE_BYTES = 5 * 10**9

CALIBRATE = {"name": "calibrate", "long": "calibrate", "short": "", "type": bool, "default": False,
             "help": "measure this machine's ceilings: bandwidth, arithmetic, the cost of a call"}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `good`, `note` (something is lacking that not everybody needs) or `fault`."""

    name: str
    level: str
    text: str
    remedy: str = ""


class Doctor(ModelbuildCommand):
    name = "doctor"
    doc_purpose = "check Python, TVM, compilers, GPU, CPU, disk and store"
    cmd_options = (CALIBRATE, FORMAT, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        if options["calibrate"]:
            return _calibrate(options["format"])
        findings = list(examine())
        if options["format"] == "json":
            sys.stdout.write(json.dumps([asdict(finding) for finding in findings], indent=2) + "\n")
        else:
            for finding in findings:
                remedy = f"; {finding.remedy}" if finding.remedy else ""
                sys.stdout.write(f"{finding.level:<6}{finding.name:<14}{finding.text}{remedy}\n")
        return EXIT_FAILED if any(finding.level == "fault" for finding in findings) else EXIT_GOOD


def _calibrate(form: str) -> int:
    """Measure one thread and all of them, and the GPU if there is one."""
    from pydoit import process
    from pydoit.console import Console
    from pydoit.profiling import ceilings
    from pydoit.profiling.show import lines

    workspace = open_workspace()
    workspace.make_state()
    process.reset()
    store, console = Store(workspace.store), Console()
    asked = [("cpu", count) for count in sorted({1, ceilings.threads_of(0)})]
    asked += [("cuda", 1)] if any(Path("/dev").glob("nvidia[0-9]*")) else []
    found = [ceilings.calibrate(workspace, store, kind, threads, console) for kind, threads in asked]
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if form == "json" else "\n".join(map(lines, found)))
    return EXIT_GOOD


def examine() -> Iterator[Finding]:
    """All findings; nothing heavy is imported."""
    yield _python()
    yield _tvm()
    yield from _distributions()
    yield _compiler()
    yield _gpu()
    yield Finding("cpu", "good", f"{tools.cpu_name()}; native arch {target.resolve_arch('cpu', 'native')}")
    yield from _workspace()


def _python() -> Finding:
    text = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", "good", text)


def _tvm() -> Finding:
    tvm, ffi = tools.version("apache-tvm"), tools.version("apache-tvm-ffi")
    text = f"apache-tvm {tvm}, apache-tvm-ffi {ffi}"
    wanted = TVM_PAIRS.get(tvm)
    if tvm == tools.ABSENT:
        return Finding("tvm", "fault", text, "run `pip install -c constraints.txt -e .`")
    if wanted is None:
        known = ", ".join(TVM_PAIRS)
        return Finding("tvm", "note", text, f"this version was not tested; tested: {known}")
    if ffi != wanted:
        return Finding("tvm", "fault", text, f"tuning crashes with this pair; run `pip install apache-tvm-ffi=={wanted}`")
    return Finding("tvm", "good", text)


def _distributions() -> Iterator[Finding]:
    extras = {
        "torch": "",
        "transformers": "transformers",
        "onnxruntime": "onnx",
        "triton": "triton",
        "onednn-cpu-gomp": "onednn",
    }
    for name, extra in extras.items():
        found = tools.version(name)
        if found != tools.ABSENT:
            yield Finding(name, "good", found)
        elif not extra:
            yield Finding(name, "fault", "not installed", f"run `pip install {name}`")
        else:
            yield Finding(name, "note", "not installed", f"models that need it: `pip install 'doit-modelbuild[{extra}]'`")


def _compiler() -> Finding:
    path = tools.compiler()
    if path is None:
        return Finding("c++", "fault", "no C++ compiler", "install g++ or clang++, or set CXX; it links lib.so")
    return Finding("c++", "good", f"{path}: {tools.compiler_version()}")


def _gpu() -> Finding:
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return Finding("gpu", "note", "no NVIDIA GPU", "CPU targets need none")
    driver = Path("/proc/driver/nvidia/version")
    text = driver.read_text().splitlines()[0] if driver.exists() else "driver version unknown"
    return Finding("gpu", "good", text)


def _workspace() -> Iterator[Finding]:
    try:
        workspace = open_workspace()
    except ModelBuildError as error:
        yield Finding("workspace", "note", str(error))
        return
    yield Finding("workspace", "good", str(workspace.root))
    store = Store(workspace.store)
    try:
        with store.in_use(), store.scratch() as folder:
            (folder / "probe").write_bytes(b"x")
        yield Finding("store", "good", str(store.root))
    except (ModelBuildError, OSError) as error:
        yield Finding("store", "fault", str(error), "set MODELBUILD_CACHE to a folder that can be written")
        return
    free = shutil.disk_usage(store.root).free
    level = "good" if free >= MIN_FREE_BYTES else "note"
    remedy = "" if level == "good" else "free space, or run `doit cache gc --max-size 10GB`"
    yield Finding("disk", level, f"{free / 1e9:.0f} GB free", remedy)
    if not os.access(workspace.root, os.W_OK):
        yield Finding("workspace", "fault", "cannot be written", "correct the folder's rights")
