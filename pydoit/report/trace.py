"""trace.json: one traced call in the Trace Event Format, which chrome://tracing and Perfetto open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydoit.report.plots.memory import live_bytes, tensors_of
from pydoit.report.reading import amount, cleaned, number, part, parts

PROCESS, KERNELS = 1, 1
MICROSECONDS = 1000.0
TOLD = ("bound", "flops", "bytes", "intensity", "speedup", "calls", "share")
"""Of each kernel, in the arguments of its events."""


def make_trace(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """The document; None without a timeline."""
    shown = cleaned(report)
    profile = part(shown, "profile")
    timeline = sorted(parts(profile.get("timeline")), key=lambda item: amount(item.get("start_ms")))
    if not timeline:
        return None
    kernels = {kernel.get("name"): kernel for kernel in parts(profile.get("kernels"))}
    name = str(shown.get("recipe"))
    return {
        "displayTimeUnit": "ms",
        "otherData": {"recipe": name, "device": str(profile.get("device")), "threads": profile.get("threads")},
        "traceEvents": [
            _named("process_name", name),
            _named("thread_name", "kernels"),
            *(_call(item, kernels.get(item.get("kernel"), {})) for item in timeline),
            *_memory(timeline, part(profile, "memory")),
        ],
    }


def _named(what: str, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": PROCESS, "tid": KERNELS, "args": {"name": name}}


def _call(item: Mapping[str, Any], kernel: Mapping[str, Any]) -> dict[str, Any]:
    """A complete event; times are microseconds."""
    return {
        "name": str(item.get("kernel")), "cat": "kernel", "ph": "X", "pid": PROCESS, "tid": KERNELS,
        "ts": amount(item.get("start_ms")) * MICROSECONDS, "dur": amount(item.get("ms")) * MICROSECONDS,
        "args": {key: kernel[key] for key in TOLD if number(kernel.get(key)) is not None or isinstance(kernel.get(key), str)},
    }  # fmt: skip


def _memory(timeline: list[Mapping[str, Any]], memory: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A counter of the bytes that are alive, where the steps of the plan are the calls of the timeline."""
    tensors = tensors_of(memory)
    steps = max((tensor.dies for tensor in tensors), default=-1) + 1
    if not 0 < steps <= len(timeline):
        return
    for item, live in zip(timeline, live_bytes(tensors, len(timeline)), strict=True):
        yield {"name": "live bytes", "ph": "C", "pid": PROCESS, "ts": amount(item.get("start_ms")) * MICROSECONDS,
               "args": {"bytes": live}}  # fmt: skip
