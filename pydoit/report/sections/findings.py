"""Findings of the diagnosis: what could be better, the evidence for it, and the change that would do it."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from pydoit.diagnosis.finding import shown
from pydoit.report.blocks import Evidence, Finding, Findings, Paragraph, Reason, Section
from pydoit.report.numbers import NONE, milliseconds, relative, shortened, signed, significant
from pydoit.report.reading import number, part, parts
from pydoit.report.status import sentence

MOST = 40
"""Findings that the page shows; report.json has all."""
NO_DIAGNOSIS = "No diagnosis: it needs a profile, and this machine's ceilings, which `doit doctor --calibrate` measures once."


def findings(report: Mapping[str, Any]) -> Section:
    """The findings, worst first."""
    diagnosis = part(report, "diagnosis")
    found = parts(diagnosis.get("findings"))
    blocks: list[Paragraph | Findings | Reason] = []
    bottleneck = part(diagnosis, "bottleneck")
    if bottleneck:
        blocks.append(Paragraph(f"Bottleneck: {bottleneck.get('class')}. {sentence(str(bottleneck.get('text') or ''))}"))
    if found:
        blocks.append(Findings([_finding(item, report) for item in found[:MOST]]))
        if len(found) > MOST:
            blocks.append(Reason(f"{len(found) - MOST} more are in report.json."))
    else:
        blocks.append(Reason("Nothing was found." if diagnosis else NO_DIAGNOSIS))
    return Section("findings", "Findings", blocks)


def _finding(item: Mapping[str, Any], report: Mapping[str, Any]) -> Finding:
    label = " · ".join(str(item[key]) for key in ("class", "kind") if item.get(key))
    kernel = item.get("kernel")
    assignments = item.get("assignments")
    return Finding(
        title=shortened(item.get("title") or label, 200),
        label=f"{label} · {shortened(kernel, 60)}" if kernel else label,
        gain=gain(item, report),
        change=sentence(shortened(item.get("change") or "", 1000)),
        assignments=[_options(change) for change in assignments] if isinstance(assignments, list) else [],
        evidence=[_evidence(each) for each in parts(item.get("evidence"))],
    )


def _options(change: Any) -> str:
    """A change of the recipe as options of a command: one assignment, or several that belong together."""
    together = change if isinstance(change, list) else [change]
    return " ".join(f"--set {quote(shortened(text, 200))}" for text in shown([str(item) for item in together]))


def gain(item: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """What a finding is worth at most, of the latency too; empty where that is not known."""
    saved = number(item.get("gain_ms"))
    if saved is None:
        return ""
    if item.get("class") == "compile":
        return f"up to {milliseconds(saved)} of a build"
    median = number(part(report, "profile", "latency_ms").get("median"))
    share = relative(median - saved, median) if median else None
    return f"up to {milliseconds(saved)}" + (f" ({signed(share)})" if share is not None else "")


def _evidence(item: Mapping[str, Any]) -> Evidence:
    unit = f" {item['unit']}" if item.get("unit") else ""
    threshold = item.get("threshold")
    limit = f"{significant(threshold)}{unit}" if threshold is not None else NONE
    value, source = f"{significant(item.get('value'))}{unit}", shortened(item.get("source") or "", 300)
    return Evidence(shortened(item.get("name")), value, limit, source)
