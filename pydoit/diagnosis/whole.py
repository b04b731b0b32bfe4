"""Findings about a call as a whole: overhead of calls, intermediates in memory, weights that fill the bandwidth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydoit.diagnosis.facts import Facts
from pydoit.diagnosis.finding import OPTIMIZED, Evidence, Finding

OVERHEAD = 0.25
SATURATED = 0.8
INTERMEDIATES = 0.3
WEIGHTS = 0.5
ARITHMETIC = 10.0
"""Operations a byte from which on a kernel is no mere pass over its tensors."""
FEWEST_CALLS = 8


def findings(facts: Facts) -> Iterator[Finding]:
    """At most one of each kind."""
    yield from _launches(facts)
    yield from _intermediates(facts)
    yield from _saturated(facts)


def _launches(facts: Facts) -> Iterator[Finding]:
    """Many calls that each do little."""
    calls = sum(kernel["calls"] for kernel in facts.kernels)
    call_ms = facts.ceilings["call_seconds"] * 1000.0
    short = [kernel for kernel in facts.kernels if kernel["best_ms"] / kernel["calls"] < 4 * call_ms]
    lost_ms = facts.gaps_ms + sum(min(kernel["best_ms"], kernel["calls"] * call_ms) for kernel in short)
    if calls < FEWEST_CALLS or lost_ms < OVERHEAD * facts.best_ms:
        return
    often = max(short or facts.kernels, key=lambda kernel: kernel["calls"])
    cuda = facts.target.get("kind") == "cuda"
    yield Finding(
        "launches",
        "scheduling",
        f"{calls} calls of kernels, {lost_ms / facts.best_ms:.0%} of the time is their overhead",
        (
            Evidence(
                "overhead of calls",
                lost_ms / facts.best_ms,
                "",
                OVERHEAD,
                "gaps between kernels, and calls at least as long "
                "as this machine takes for an empty kernel (doit doctor --calibrate)",
            ),
            Evidence("calls", calls),
            Evidence("an empty call", call_ms * 1000.0, "us"),
            Evidence("gaps", facts.gaps_ms, "ms"),
        ),
        "fuse more (FuseOps, O2)"
        + (
            ", or capture the step as one CUDA graph"
            if cuda
            else ", use fewer threads for so little work, or give more work to a call (a larger batch)"
        ),
        often["name"],
        (*_fusing(facts), *_fewer_threads(facts)),
        lost_ms,
    )


def _intermediates(facts: Facts) -> Iterator[Finding]:
    """Kernels that pass over what the one before has just written, when that does not stay in a cache."""
    memory = facts.profile.get("memory") or {}
    steps: Sequence[Mapping[str, Any]] = facts.profile.get("timeline") or []
    named = {kernel["name"]: kernel for kernel in facts.kernels}
    passes_over = {
        name: kernel
        for name, kernel in named.items()
        if kernel.get("intensity") is not None and kernel["intensity"] < ARITHMETIC and kernel["bound"] == "memory"
    }
    moved: dict[str, int] = {}
    for tensor in memory.get("tensors") or []:
        follows = tensor["dies"] == tensor["born"] + 1 and tensor["dies"] < len(steps)
        if follows and tensor["name"] in passes_over and steps[tensor["dies"]]["kernel"] in passes_over:
            moved[tensor["name"]] = moved.get(tensor["name"], 0) + 2 * tensor["bytes"]
    spent = sum(kernel["best_ms"] for name, kernel in passes_over.items())
    everything = sum(kernel["bytes"] for kernel in passes_over.values())
    share = sum(moved.values()) / everything * spent / facts.best_ms if everything else 0.0
    if not moved or share < INTERMEDIATES:
        return
    largest = max(moved, key=lambda name: moved[name])
    yield Finding(
        "intermediates",
        "memory",
        f"{sum(moved.values()) / 1e6:.0f} MB of intermediates are written only for the next kernel to read",
        (
            Evidence(
                "share of a call", share, "", INTERMEDIATES, "their share of the bytes that passes over tensors move, by time"
            ),
            Evidence("intermediate bytes", memory["intermediate_bytes"], "B"),
        ),
        "fuse the kernels, so that values stay in registers (FuseOps, O2)",
        largest,
        _fusing(facts),
        share * facts.best_ms,
    )


def _saturated(facts: Facts) -> Iterator[Finding]:
    """Weights in float32 that take all of the memory's bandwidth: only fewer bytes help."""
    full = [
        kernel
        for kernel in facts.kernels
        if kernel.get("bound") == "memory"
        and kernel["weight_dtype"] == "float32"
        and kernel["weight_bytes"] > kernel["bytes"] / 2
        and (facts.utilization(kernel) or 0.0) >= SATURATED
    ]
    share = sum(kernel["best_ms"] for kernel in full) / max(facts.best_ms, 1e-9)
    if share < WEIGHTS:
        return
    kernel = full[0]
    reached = sum(item["bytes"] for item in full) / sum(item["best_ms"] for item in full) * 1000.0
    yield Finding(
        "saturated",
        "memory",
        f"reading float32 weights takes {share:.0%} of a call at {reached / 1e9:.1f} GB/s",
        (
            Evidence(
                "share of the bandwidth",
                facts.utilization(kernel) or 0.0,
                "",
                SATURATED,
                "time at this machine's ceilings over the best time; from 80 % on memory is the limit",
            ),
            Evidence("weights", sum(item["weight_bytes"] for item in full), "B"),
            Evidence("share of a call", share, "", WEIGHTS),
        ),
        'halve the bytes: [target] precision = "bfloat16", or quantize the weights; or share a pass over them between more '
        "inputs (a larger batch)",
        kernel["name"],
        _narrower(facts),
        share * facts.best_ms / 2,
    )


def _fusing(facts: Facts) -> tuple[tuple[str, ...], ...]:
    return () if facts.fuses else ((OPTIMIZED,),)


def _fewer_threads(facts: Facts) -> tuple[tuple[str, ...], ...]:
    return (("target.threads=1",),) if facts.threads > 1 and facts.target.get("kind") != "cuda" else ()


def _narrower(facts: Facts) -> tuple[tuple[str, ...], ...]:
    offered = facts.onednn and facts.target.get("kind") == "cpu" and facts.target.get("precision") != "bfloat16"
    return (('target.precision="bfloat16"', 'kernels.matmul="onednn"', 'kernels.conv2d="onednn"'),) if offered else ()
