"""A summary for a pull request, in GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydoit.report.figures import FIGURES, figures_of
from pydoit.report.numbers import NONE, counted, relative, shortened, signed, significant
from pydoit.report.reading import amount, cleaned, number, part, parts
from pydoit.report.sections.findings import gain
from pydoit.report.status import outcome, verdict

FINDINGS = 3
SHOWN = ("latency_ms", "p95_ms", "artifact_bytes", "library_bytes", "peak_memory_bytes", "max_abs", "cosine", "perplexity")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&@])")


def make_markdown(report: Mapping[str, Any]) -> str:
    """Outcome, a table of figures beside the previous and the locked build, accuracy and findings."""
    shown = cleaned(report)
    lines = [f"### {plain(shown.get('recipe'))}: {verdict(shown)[1]}", "", plain(outcome(shown)), ""]
    lines += [*_table(shown), "", *_notes(shown)]
    return "\n".join(lines).rstrip() + "\n"


def plain(text: Any, longest: int = 300) -> str:
    """The text with what Markdown and GitHub would take for markup or a mention escaped."""
    return _SPECIAL.sub(r"\\\1", shortened(" ".join(str(text).split()), longest)).replace(r"\@", "@\u200b")


def _table(report: Mapping[str, Any]) -> Iterator[str]:
    now, previous = figures_of(report), part(report, "previous", "figures")
    locked = part(report, "locked", "figures") if part(report, "locked").get("is_current") is not True else {}
    others = [(name, figures) for name, figures in (("previous", previous), ("locked", locked)) if figures]
    head = ["figure", "this build", *(title for name, _ in others for title in (name, "change"))]
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for name in SHOWN:
        if name not in now and not any(number(figures.get(name)) is not None for _, figures in others):
            continue
        figure = FIGURES[name]
        cells = [figure.label, figure.shown(now.get(name))]
        for _, figures in others:
            cells += [figure.shown(figures.get(name)), signed(relative(now.get(name), figures.get(name)))]
        yield f"| {' | '.join(cells)} |"
    yield from (f"| {label} | {' | '.join([text, *[NONE] * (len(head) - 2)])} |" for label, text in _states(report))


def _states(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    verify, stages = part(report, "verify"), parts(report.get("stages"))
    if verify:
        passed = "✓ passed" if verify.get("passed") is True else "✗ failed"
        yield (
            "accuracy",
            f"{passed} against {plain(verify.get('reference'))} ({counted(int(amount(verify.get('samples'))), 'sample')})",
        )
    ran = sum(stage.get("status") == "built" for stage in stages)
    cached = sum(stage.get("status") in ("hit", "restored") for stage in stages)
    yield "stages", f"{ran} built, {cached} from the cache"


def _notes(report: Mapping[str, Any]) -> Iterator[str]:
    findings = parts(part(report, "diagnosis").get("findings"))
    for item in findings[:FINDINGS]:
        worth = gain(item, report)
        yield f"- {plain(item.get('title'))}{f' ({worth})' if worth else ''}"
    if len(findings) > FINDINGS:
        yield f"- and {len(findings) - FINDINGS} more findings in the report"
    profile = part(report, "profile")
    if profile:
        count = counted(int(amount(profile.get("threads"))), "thread")
        calls = significant(part(profile, "latency_ms").get("n"))
        yield ""
        yield f"{plain(profile.get('device'))}, {count}, n = {calls}; builds were timed at different moments."
