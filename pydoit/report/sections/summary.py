"""Summary: what came out, in a sentence and in the figures that decisions rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydoit.report.blocks import Card, Cards, Paragraph, Section
from pydoit.report.numbers import counted, milliseconds, percent, relative, scaled, seconds, signed, significant, size, trimmed
from pydoit.report.reading import amount, number, part, parts
from pydoit.report.status import outcome, sentence, status_text

STEADY = 0.02
"""Changes within it are told as the same."""


def summary(report: Mapping[str, Any]) -> Section:
    """Cards for latency, accuracy, size, memory and the build, below a sentence on the outcome."""
    cards = [card for make in (_latency, _accuracy, _size, _memory, _build) if (card := make(report)) is not None]
    text = " ".join(filter(None, (outcome(report), _device(report), _bottleneck(report))))
    return Section("summary", "Summary", [Paragraph(text), Cards(cards)])


def _latency(report: Mapping[str, Any]) -> Card:
    profile = part(report, "profile")
    latency = part(profile, "latency_ms")
    if number(latency.get("median")) is None:
        return Card("Latency", "not measured", [status_text(report, "profile")])
    is_language = bool(parts(profile.get("decode")))
    notes = [f"p95 {milliseconds(latency.get('p95'))}, n = {significant(latency.get('n'))}"]
    if number(profile.get("throughput")) is not None:
        notes.append(f"{significant(profile['throughput'])} {'tokens' if is_language else 'calls'} per second")
    before = part(report, "previous", "figures").get("latency_ms")
    change = relative(latency["median"], before)
    if change is not None:
        notes.append(f"{speed(change)} (it was {milliseconds(before)})")
    label = "Latency of a decoded token, median" if is_language else "Latency of a call, median"
    return Card(label, milliseconds(latency["median"]), notes, "" if change is None else tone_of(change))


def speed(change: float) -> str:
    """A change of a latency in words."""
    if abs(change) <= STEADY:
        return "same as the previous build"
    return f"{signed(change)}, {'slower' if change > 0 else 'faster'} than the previous build"


def tone_of(change: float) -> str:
    """Whether a smaller figure is good."""
    return "" if abs(change) <= STEADY else "bad" if change > 0 else "good"


def _accuracy(report: Mapping[str, Any]) -> Card:
    verify = part(report, "verify")
    if not verify:
        return Card("Accuracy", "not verified", [status_text(report, "verify")])
    bounds = part(verify, "tolerance")
    notes = [f"against {verify.get('reference')}, {counted(int(amount(verify.get('samples'))), 'sample')}"]
    for metric in ("max_abs", "cosine", "top1", "perplexity_change"):
        if verify.get(metric) is not None:
            bound = bounds.get("perplexity" if metric == "perplexity_change" else metric)
            limit = f" (bound {trimmed(significant(bound, 5))})" if bound is not None else ""
            notes.append(f"{metric} {significant(verify[metric], 5 if metric in ('cosine', 'top1') else 3)}{limit}")
    passed = verify.get("passed") is True
    return Card("Accuracy", "✓ passed" if passed else "✗ failed", notes, "good" if passed else "bad")


def _size(report: Mapping[str, Any]) -> Card | None:
    files = parts(report.get("artifact"))
    library = part(report, "library").get("bytes") or part(report, "measurements", "compile").get("library_bytes")
    if not files and number(library) is None:
        return None
    total = sum(amount(item.get("bytes")) for item in files)
    weights = sum(amount(item.get("bytes")) for item in files if str(item.get("path")).startswith("weights/"))
    notes = [f"library {size(library)}"] if number(library) is not None else []
    notes += [f"weights {size(weights)}"] if weights else []
    notes += [f"{counted(len(files), 'file')}"] if files else ["not published"]
    change = relative(total, part(report, "previous", "figures").get("artifact_bytes")) if files else None
    if change:
        notes.append(f"{signed(change)} to the previous build")
    return Card("Size", size(total) if files else size(library), notes)


def _memory(report: Mapping[str, Any]) -> Card | None:
    profile = part(report, "profile")
    if number(profile.get("peak_memory_bytes")) is None:
        return None
    planned = part(profile, "memory").get("planned_bytes") or part(report, "measurements", "compile", "planned_bytes").get(
        "main"
    )
    notes = ["of the whole process, at its peak"]
    notes += [f"{size(planned)} planned for intermediates"] if number(planned) is not None else []
    notes += [f"loads in {milliseconds(profile.get('load_ms'))}"] if number(profile.get("load_ms")) is not None else []
    return Card("Memory", size(profile["peak_memory_bytes"]), notes)


def _build(report: Mapping[str, Any]) -> Card:
    stages = parts(report.get("stages"))
    ran = [stage for stage in stages if stage.get("status") == "built"]
    cached = [stage for stage in stages if stage.get("status") in ("hit", "restored")]
    saved = sum(amount(stage.get("seconds")) for stage in cached)
    notes = [f"{counted(len(ran), 'stage')} built"]
    if cached:
        notes.append(f"{len(cached)} from the cache, which took {seconds(saved)} once")
    others = [f"{stage.get('name')} {stage.get('status')}" for stage in stages if stage not in [*ran, *cached]]
    time = seconds(sum(amount(stage.get("seconds")) for stage in ran)) if ran else "nothing ran"
    return Card("Build", time, [*notes, *others])


def _device(report: Mapping[str, Any]) -> str:
    profile = part(report, "profile")
    if not profile.get("device"):
        return ""
    return f"Measured on {profile['device']}, {counted(int(amount(profile.get('threads'))), 'thread')}."


def _bottleneck(report: Mapping[str, Any]) -> str:
    found = part(report, "diagnosis", "bottleneck")
    if found.get("text"):
        return sentence(str(found["text"]))
    kernels = parts(part(report, "profile").get("kernels"))
    if not kernels:
        return ""
    top = max(kernels, key=lambda kernel: amount(kernel.get("ms")))
    rate = (
        f" at {scaled(amount(top.get('flops')) / amount(top['ms']) * 1e3, 'flop/s')}"
        if top.get("flops") and top.get("ms")
        else ""
    )
    return f"The slowest kernel takes {percent(top.get('share'))} of the kernels' time{rate}."
