"""The ceilings of this machine: measured once, kept beside the store under the hardware's identity."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit import tools
from pydoit.apart import run_apart
from pydoit.console import Console
from pydoit.history import write_atomically
from pydoit.keys import digest_of, pretty
from pydoit.store import Store
from pydoit.workspace import Workspace

SCHEMA = 1
_SHORT = 12


def hardware(kind: str, threads: int) -> dict[str, Any]:
    """What ceilings depend on."""
    cpu = {"cpu": tools.cpu_name(), "flags": tools.cpu_flags_digest(), "threads": threads}
    return {"kind": kind, "gpu": tools.gpu_names()} if kind == "cuda" else {"kind": kind, **cpu}


def threads_of(count: int) -> int:
    """A recipe's thread count, where 0 means one for each usable CPU."""
    return count or len(os.sched_getaffinity(0))


def read(store: Path, kind: str, threads: int) -> dict[str, Any] | None:
    """The ceilings that were measured on this hardware: {device, threads, bandwidth: [{bytes, read}], copy, flops: {dtype:
    operations a second}, call_seconds}, all in seconds, bytes and operations; None before they were."""
    try:
        found: dict[str, Any] = json.loads(_path(store, kind, threads).read_bytes())
    except (OSError, ValueError):
        return None
    return found if found.get("schema") == SCHEMA else None


def calibrate(workspace: Workspace, store: Store, kind: str, threads: int, console: Console) -> dict[str, Any]:
    """Measure, alone on the machine, and keep; raises StageError where it fails.

    Other work only lowers what is reached: of several measurements on the same hardware the best figures count.
    """
    spec = {"kind": kind, "threads": threads}
    label = tools.gpu_names() if kind == "cuda" else f"{threads} thread{'s' if threads > 1 else ''}"
    with store.in_use():
        measured = run_apart(
            workspace, store, "calibrate", spec, {}, label=label, log="calibrate.log", console=console, alone=True
        )
    device = tools.gpu_names() if kind == "cuda" else tools.cpu_name()
    earlier = read(store.root, kind, threads)
    best = _best(earlier, measured) if earlier else measured
    found = {"schema": SCHEMA, "device": device, "hardware": hardware(kind, threads), "threads": threads, **best}
    path = _path(store.root, kind, threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, pretty(found))
    return found


def _best(earlier: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """The higher speeds and the shorter times."""
    reached = {level["bytes"]: level["read"] for level in earlier["bandwidth"]}
    return {
        **measured,
        "bandwidth": [
            {**level, "read": max(level["read"], reached.get(level["bytes"], 0.0))} for level in measured["bandwidth"]
        ],
        "copy": max(earlier["copy"], measured["copy"]),
        "flops": {name: max(speed, earlier["flops"].get(name, 0.0)) for name, speed in measured["flops"].items()},
        "call_seconds": min(earlier["call_seconds"], measured["call_seconds"]),
    }


def _path(store: Path, kind: str, threads: int) -> Path:
    return store / "machines" / f"{digest_of(hardware(kind, threads))[:_SHORT]}.json"
