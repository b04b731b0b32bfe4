"""A diagnosis for a terminal."""

from __future__ import annotations

from pydoit.diagnosis.diagnose import Diagnosis
from pydoit.diagnosis.facts import Facts
from pydoit.diagnosis.finding import Evidence, Finding, shown
from pydoit.diagnosis.loop import Loop
from pydoit.report.numbers import shortened
from pydoit.text_table import text_table

KERNELS = 10
NAME = 60
"""Characters of a kernel's name; those of long fusions have hundreds."""


def text(recipe: str, facts: Facts, found: Diagnosis) -> str:
    """What bounds it, the kernels that are worth most, the findings."""
    lines = [
        f"{recipe}: median {facts.latency_ms:.3f} ms on {facts.profile['device']}, {facts.threads} threads; {found.text}",
        "",
    ]
    lines += [_kernel_table(facts), _findings(found)]
    return "\n".join(lines)


def loop_text(recipe: str, loop: Loop) -> str:
    """What was tried, what is left."""
    lines = [f"{recipe}: {loop.before.latency_ms:.3f} ms -> {loop.after.latency_ms:.3f} ms"]
    if loop.trials:
        rows = [
            (
                f"{trial.finding.bottleneck}: {trial.finding.kind}",
                " ".join(shown(trial.assignments)),
                trial.ratio.text if trial.ratio else "",
                trial.outcome,
            )
            for trial in loop.trials
        ]
        lines += ["", text_table(("finding", "change", "time", "verdict"), rows).rstrip()]
    lines += [f"the bottleneck moved: {move}" for move in loop.moves]
    if loop.kept:
        lines += ["", "put into the recipe:", *(f"  {assignment}" for assignment in shown(loop.kept))]
    return "\n".join([*lines, "", _findings(loop.last)])


def _kernel_table(facts: Facts) -> str:
    """What is worth tuning, by what the roofline says it could gain."""
    ranked = sorted(facts.kernels, key=lambda kernel: -(kernel.get("headroom_ms") or 0.0))[:KERNELS]
    rows = [
        (
            shortened(kernel["name"], NAME),
            str(kernel["calls"]),
            f"{kernel['ms']:.4f}",
            f"{kernel['share']:.0%}",
            kernel["bound"] or "-",
            "-" if kernel["bound_ms"] is None else f"{kernel['bound_ms']:.4f}",
            "-" if kernel["headroom_ms"] is None else f"{kernel['headroom_ms']:.4f}",
        )
        for kernel in ranked
    ]
    return text_table(("kernel", "calls", "ms", "share", "bound by", "bound ms", "headroom ms"), rows)


def _findings(found: Diagnosis) -> str:
    if not found.findings:
        return "no findings: nothing that this looks for costs a tenth of the time\n"
    return "\n".join(_finding(number, finding) for number, finding in enumerate(found.findings, 1))


def _finding(number: int, finding: Finding) -> str:
    gain = f" (at most {finding.gain_ms:.3f} ms)" if finding.gain_ms else ""
    lines = [f"{number}. {finding.bottleneck}, {finding.kind}: {shortened(finding.title)}{gain}"]
    lines += [f"   {_evidence(item)}" for item in finding.evidence]
    lines += [f"   change: {finding.change}"]
    lines += [f"   try: {' '.join(shown(chosen))}" for chosen in finding.assignments]
    return "\n".join(lines) + "\n"


def _evidence(item: Evidence) -> str:
    value = f"{item.value:.3g} {item.unit}".rstrip()
    against = (
        f" (threshold {item.threshold:g}{': ' + item.source if item.source else ''})" if item.threshold is not None else ""
    )
    return f"{item.name}: {value}{against}"
