"""A comparison for a terminal, for a pull request, and for CI."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from pydoit.regression.bench import Comparison
from pydoit.text_table import text_table

COLUMNS = ("metric", "first", "second", "change", "verdict")


def table(found: Comparison) -> str:
    """Text: a row a metric, notes, the verdict."""
    lines = [f"{found.second} against {found.first} on {found.device}"]
    lines += [text_table(COLUMNS, _rows(found)).rstrip()]
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join([*lines, f"verdict: {found.verdict}"]) + "\n"


def markdown(found: Comparison) -> str:
    """A summary for a pull request."""
    lines = [f"### `{found.second}` against `{found.first}`: {found.verdict}", ""]
    lines += [f"| {' | '.join(row)} |" for row in (COLUMNS, ("---",) * len(COLUMNS), *_rows(found))]
    rounds = found.changes[0]
    how = f"{rounds.processes} processes, {rounds.rounds} interleaved samples of each; change of the second, its 98 % interval"
    lines += ["", f"{found.device}; {how}"]
    return "\n".join([*lines, *(f"- {note}" for note in found.notes)]) + "\n"


def junit(found: Comparison) -> str:
    """JUnit XML: a case a metric, a failure where it got worse, skipped where nothing can be said."""
    suite = ET.Element("testsuite", name=f"bench {found.second} against {found.first}", tests=str(len(found.changes)))
    suite.set("failures", str(sum(change.verdict == "worse" for change in found.changes)))
    suite.set("skipped", str(sum(change.verdict == "inconclusive" for change in found.changes)))
    for change in found.changes:
        seconds = f"{change.second_ms / 1000.0:.6f}"
        case = ET.SubElement(suite, "testcase", classname=found.second, name=change.metric, time=seconds)
        if change.verdict == "worse":
            ET.SubElement(case, "failure", message=f"{change.text}, margin {100 * change.margin:g} %")
        elif change.verdict == "inconclusive":
            ET.SubElement(case, "skipped", message=f"inconclusive: {change.text}")
    ET.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _rows(found: Comparison) -> list[tuple[str, ...]]:
    return [
        (change.metric, f"{change.first_ms:.3f} ms", f"{change.second_ms:.3f} ms", change.text, change.verdict)
        for change in found.changes
    ]
