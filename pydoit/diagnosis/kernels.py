"""Findings about kernels that could be much faster, and together a tenth of a call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydoit.diagnosis.facts import Facts
from pydoit.diagnosis.finding import OPTIMIZED, Evidence, Finding

WORTH = 0.1
"""Share of a call's time that kernels of one kind could gain, for them to be worth a finding."""
COMPUTE_UTILIZATION = 0.5
MEMORY_UTILIZATION = 0.5
BALANCE = 0.8
VECTOR_SHARE = 0.5
PARALLEL_SHARE = 0.5
ROOFLINE = "time at this machine's ceilings (doit doctor --calibrate) over the kernel's best time"
LOOPS = "loops of the scheduled kernel, weighted with the times that they run"
CALLS_APART = 10
"""A kernel that takes fewer times the cost of a call is judged by its calls alone."""


def findings(facts: Facts) -> Iterator[Finding]:
    """At most one of each kind: of the kernel that could gain most, and those like it."""
    alike: dict[str, list[Finding]] = {}
    for kernel in facts.kernels:
        utilization = facts.utilization(kernel)
        if utilization is None or _is_brief(kernel, facts):
            continue
        found = _unparallel(kernel, facts) or _slow(kernel, facts, utilization)
        if found is not None:
            alike.setdefault(found.kind, []).append(found)
    for group in alike.values():
        gain = sum(finding.gain_ms or 0.0 for finding in group)
        if gain >= WORTH * facts.best_ms:
            first = max(group, key=lambda finding: finding.gain_ms or 0.0)
            others = f", and {len(group) - 1} more like it" if len(group) > 1 else ""
            yield replace(first, title=first.title + others, gain_ms=gain)


def _is_brief(kernel: Mapping[str, Any], facts: Facts) -> bool:
    """Whether it consists of its calls more than of its work."""
    calls_ms = kernel["calls"] * facts.ceilings["call_seconds"] * 1000.0
    return bool(kernel["best_ms"] <= CALLS_APART * calls_ms)


def _unparallel(kernel: Mapping[str, Any], facts: Facts) -> Finding | None:
    """One whose work the threads do not share, or do not share evenly."""
    loops, threads = kernel.get("loops"), facts.threads
    if loops is None or threads < 2:
        return None
    gain = min(kernel["best_ms"] * (1 - 1 / threads), kernel["best_ms"] - kernel["bound_ms"])
    if loops["parallel_share"] < PARALLEL_SHARE:
        return Finding(
            "serial",
            "scheduling",
            f"{kernel['name']} runs on one of {threads} threads",
            (
                Evidence("parallel share of the work", loops["parallel_share"], "", PARALLEL_SHARE, LOOPS),
                *_share(kernel, facts),
            ),
            "take an operator that does not carry a value from step to step, split it over batch or heads, or hand it to "
            "another provider ([kernels])",
            kernel["name"],
            gain_ms=gain,
        )
    rounds = math.ceil(loops["parallel"] / threads)
    balance = loops["parallel"] / (rounds * threads)
    if balance >= BALANCE:
        return None
    return Finding(
        "imbalance",
        "scheduling",
        f"{kernel['name']} has {loops['parallel']} parallel pieces for {threads} threads: some wait for the others",
        (Evidence("share of the threads that work", balance, "", BALANCE, LOOPS), *_share(kernel, facts)),
        "tune it, so that its parallel loop has many more pieces than threads, or set [target] threads to a divisor of "
        f"{loops['parallel']}",
        kernel["name"],
        assignments=((f"target.threads={_divisor(loops['parallel'], threads)}",),) if loops["parallel"] > 1 else (),
        gain_ms=min(kernel["best_ms"] * (1 - balance), kernel["best_ms"] - kernel["bound_ms"]),
    )


def _divisor(pieces: int, threads: int) -> int:
    """The most threads, of those that there are, that share so many pieces evenly."""
    return next(count for count in range(threads, 0, -1) if pieces % count == 0)


def _slow(kernel: Mapping[str, Any], facts: Facts, utilization: float) -> Finding | None:
    """One that is far from the ceiling which bounds it."""
    gain = kernel["best_ms"] - kernel["bound_ms"]
    if kernel["bound"] == "compute" and utilization < COMPUTE_UTILIZATION:
        evidence = (Evidence("share of peak arithmetic", utilization, "", COMPUTE_UTILIZATION, ROOFLINE), *_ipc(kernel))
        loops = kernel.get("loops") or {"vector_share": 1.0}
        if loops["vector_share"] < VECTOR_SHARE:
            vectors = Evidence("vectorized share of the work", loops["vector_share"], "", VECTOR_SHARE, LOOPS)
            return Finding(
                "unvectorized",
                "compute",
                f"{kernel['name']} computes one element at a time",
                (*evidence, vectors),
                "bring the dimension that it writes along to a multiple of 4 (pad channels), or change the layout so that "
                "neighbours in memory are computed together",
                kernel["name"],
                _providers(facts),
                gain,
            )
        return Finding(
            "underused",
            "compute",
            f"{kernel['name']} reaches {utilization:.0%} of the CPU's arithmetic",
            evidence,
            "search a schedule (doit tune), or let another provider compute it ([kernels])",
            kernel["name"],
            _providers(facts),
            gain,
        )
    if kernel["bound"] == "memory" and utilization < MEMORY_UTILIZATION:
        reached = kernel["bytes"] / kernel["best_ms"] * 1000.0
        return Finding(
            "locality",
            "memory",
            f"{kernel['name']} moves {reached / 1e9:.1f} GB/s, {utilization:.0%} of what memory gives",
            (
                Evidence("share of the bandwidth", utilization, "", MEMORY_UTILIZATION, ROOFLINE),
                Evidence("bytes moved", kernel["bytes"], "B"),
                *_ipc(kernel),
                *_share(kernel, facts),
            ),
            "avoid the strided access: change layouts so that no transpose is left (ConvertLayout), or fuse "
            "it into its neighbour",
            kernel["name"],
            _orders(facts),
            gain,
        )
    return None


def _share(kernel: Mapping[str, Any], facts: Facts) -> tuple[Evidence, ...]:
    return (Evidence("share of a call", kernel["best_ms"] / max(facts.best_ms, 1e-9), ""),)


def _ipc(kernel: Mapping[str, Any]) -> tuple[Evidence, ...]:
    """Instructions a cycle, where the machine counts them."""
    counted = kernel.get("counters", {})
    if not counted.get("cycles"):
        return ()
    value = counted["instructions"] / counted["cycles"]
    return (Evidence("instructions a cycle", value, "", 2.0, "a core retires four to six; below two it mostly waits"),)


def _providers(facts: Facts) -> tuple[tuple[str, ...], ...]:
    """Other providers of the same kernels."""
    if not facts.onednn or facts.target.get("kind") != "cpu":
        return _orders(facts)
    return (('kernels.conv2d="onednn"', 'kernels.matmul="onednn"'), *_orders(facts))


def _orders(facts: Facts) -> tuple[tuple[str, ...], ...]:
    """Presets that arrange layouts, where the recipe's own order does not."""
    return () if "ConvertLayout" in facts.names or "PackWeights" in facts.names else ((OPTIMIZED,),)
