"""What became of the build, in words: for the head of the page, the summary and a pull request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydoit.report.numbers import shortened
from pydoit.report.reading import part, parts

GOOD = ("built", "hit", "restored")


def verdict(report: Mapping[str, Any]) -> tuple[str, str]:
    """`good`, `bad` or `partial`, and the words for it."""
    stages = parts(report.get("stages"))
    if any(stage.get("status") in ("failed", "skipped") for stage in stages):
        return "bad", "✗ failed"
    if any(stage.get("status") not in GOOD for stage in stages) or not part(report, "library"):
        return "partial", "◐ incomplete"
    return "good", "✓ published"


def outcome(report: Mapping[str, Any]) -> str:
    """A sentence or two on what was built, what failed and what was put off."""
    stages = parts(report.get("stages"))
    failed = [stage for stage in stages if stage.get("status") == "failed"]
    deferred = [str(stage.get("name")) for stage in stages if stage.get("status") == "deferred"]
    if failed:
        first = failed[0]
        return (
            f"Nothing was published: {first.get('name')} failed. {sentence(str(first.get('reason') or 'No reason was given'))}"
        )
    text = "The artifact was built and published" if part(report, "library") else "The build ended without an artifact"
    if part(report, "verify").get("passed") is True:
        text += "; it agrees with its reference"
    put_off = f" Deferred, because this machine lacks what they need: {', '.join(deferred)}." if deferred else ""
    return f"{text}.{put_off}"


def status_text(report: Mapping[str, Any], name: str) -> str:
    """Why a stage left nothing to show."""
    for stage in parts(report.get("stages")):
        if stage.get("name") == name:
            reason = f": {shortened(stage['reason'], 200)}" if stage.get("reason") and stage.get("status") not in GOOD else ""
            return f"{name} {stage.get('status')}{reason}"
    return f"{name} has not run"


def sentence(text: str) -> str:
    """The text with a capital and a full stop; nothing of nothing."""
    return f"{text[:1].upper()}{shortened(text[1:], 400)}".rstrip(".") + "." if text else ""
