"""The report of a recipe as tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

STYLES = {"built": "green", "hit": "green", "restored": "green", "deferred": "yellow", "failed": "red", "skipped": "yellow"}


def print_table(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Stages, library, accuracy and latency of one recipe on stdout."""
    console = console or Console()
    table = Table(title=f"{report['recipe']}  ({report['target'].get('arch', '')})", title_justify="left")
    for column in ("stage", "status", "seconds", "key", "reason"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for stage in report["stages"]:
        status = Text(stage["status"], style=STYLES.get(stage["status"], ""))
        table.add_row(stage["name"], status, f"{stage['seconds']:.1f}", (stage["key"] or "")[:12], Text(stage["reason"] or ""))
    console.print(table)
    for name, text in _facts(report):
        console.print(Text(f"{name:<9}{text}"), soft_wrap=True)


def _facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = []
    library, verify, profile = report["library"], report["verify"], report["profile"]
    if library:
        facts.append(("library", f"{library['path']}  {library['bytes']:,} bytes  sha256 {library['sha256'][:12]}"))
    if verify:
        outcome = "passed" if verify["passed"] else "FAILED"
        figures = ", ".join(f"{key} {verify[key]:.3g}" for key in ("max_abs", "max_rel") if verify.get(key) is not None)
        facts.append(("verify", f"{outcome} against {verify.get('reference')}: {figures}, cosine {verify.get('cosine')}"))
    if profile:
        latency = profile["latency_ms"]
        figures = f"median {latency['median']:.2f} ms, p95 {latency['p95']:.2f} ms (n = {latency['n']})"
        facts.append(("profile", f"{figures}, {profile['throughput']:.1f}/s, {profile['device']}"))
    return facts
