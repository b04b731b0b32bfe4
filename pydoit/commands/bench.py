"""doit bench A B: is B slower than A? doit bench --history: what was measured before."""

from __future__ import annotations

import json
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydoit import process
from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD, FORMAT, TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.workspace import Workspace, open_workspace

MARGIN = {"name": "margin", "long": "margin", "short": "", "type": str, "default": "2%",
          "help": "changes within it count for nothing"}  # fmt: skip
ROUNDS = {"name": "rounds", "long": "rounds", "short": "", "type": int, "default": 40, "help": "samples of each in one process"}
PROCESSES = {"name": "processes", "long": "processes", "short": "", "type": int, "default": 12,
             "help": "most processes; it ends earlier, from 4 on, when the verdict is clear"}  # fmt: skip
AT = {"name": "at", "long": "at", "short": "", "type": list, "default": [],
      "help": "extent of a symbolic dimension, --at sequence=64 (repeatable); default: the largest"}  # fmt: skip
MARKDOWN = {
    "name": "markdown",
    "long": "markdown",
    "short": "",
    "type": str,
    "default": "",
    "help": "write a summary for a pull request",
}
JUNIT = {"name": "junit", "long": "junit", "short": "", "type": str, "default": "", "help": "write JUnit XML for CI"}
HISTORY = {"name": "history", "long": "history", "short": "", "type": bool, "default": False,
           "help": "measure nothing; show the experiments so far, of the recipes that are named"}  # fmt: skip
PLOT = {
    "name": "plot",
    "long": "plot",
    "short": "",
    "type": str,
    "default": "",
    "help": "with --history: write the trend as SVG",
}
FIGURE = {
    "name": "figure",
    "long": "figure",
    "short": "",
    "type": str,
    "default": "latency_ms",
    "help": "with --plot: what is drawn",
}


class Bench(ModelbuildCommand):
    name = "bench"
    doc_purpose = "measure an artifact beside another: better, worse, same or inconclusive"
    doc_usage = "A B, each RECIPE[@VARIANT][:REVISION] or an artifact's folder"
    cmd_options = (MARGIN, ROUNDS, PROCESSES, AT, MARKDOWN, JUNIT, HISTORY, PLOT, FIGURE, FORMAT, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        workspace = open_workspace()
        if options["history"] or options["plot"]:
            return _history(workspace, options, arguments)
        if len(arguments) != 2:
            raise UserError("doit bench takes two artifacts; write `doit bench A B`, e.g. `doit bench minilm:main minilm`")
        return _bench(workspace, options, arguments[0], arguments[1])


def _bench(workspace: Workspace, options: dict[str, Any], first: str, second: str) -> int:
    from pydoit.console import Console
    from pydoit.regression import show
    from pydoit.regression.bench import Effort, compare
    from pydoit.regression.journal import Experiment, Journal
    from pydoit.regression.sides import open_side

    effort = Effort(fraction(options["margin"], "--margin"), _count(options, "rounds", 2), _count(options, "processes", 1))
    extents = dict(_extent(text) for text in options["at"])
    workspace.make_state()
    process.reset()
    console = Console()
    with ExitStack() as stack:
        a, b = (stack.enter_context(open_side(workspace, name, console)) for name in (first, second))
        found = compare(workspace, a, b, effort, {"extents": extents}, console)
    figures = {f"{change.metric}_ms": change.second_ms for change in found.changes}
    ratios = {f"{change.metric}_ratio": change.ratio for change in found.changes}
    recipe = second.partition(":")[0]
    Journal(workspace.state).add(Experiment("bench", recipe, f"{second} against {first}", {**figures, **ratios}, found.verdict))
    for option, text in (("markdown", show.markdown(found)), ("junit", show.junit(found))):
        if options[option]:
            Path(options[option]).write_text(text, encoding="utf-8")
    sys.stdout.write(json.dumps(found.to_json(), indent=2) + "\n" if options["format"] == "json" else show.table(found))
    return EXIT_FAILED if found.verdict == "worse" else EXIT_GOOD


def _history(workspace: Workspace, options: dict[str, Any], names: list[str]) -> int:
    from pydoit.regression.journal import Journal
    from pydoit.regression.trend import svg, table

    journal = Journal(workspace.state)
    rows = journal.rows() if not names else [row for name in names for row in journal.rows(name)]
    if options["plot"]:
        Path(options["plot"]).write_text(svg(rows, options["figure"]), encoding="utf-8")
    elif options["format"] == "json":
        sys.stdout.write(json.dumps([vars(row) for row in rows], indent=2) + "\n")
    else:
        sys.stdout.write(table(rows))
    return EXIT_GOOD


def fraction(text: str, option: str) -> float:
    """`3%` as 0.03; UserError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    if found is None or float(found[1]) >= 100:
        raise UserError(f"{option} {text}: write a percentage below 100, e.g. {option} 3%")
    return float(found[1]) / 100


def _count(options: dict[str, Any], name: str, least: int) -> int:
    value = int(options[name])
    if value < least:
        raise UserError(f"--{name} {value}: must be at least {least}")
    return value


def _extent(text: str) -> tuple[str, int]:
    name, equals, size = text.partition("=")
    if not (equals and name and size.isdecimal() and int(size) > 0):
        raise UserError(f"--at {text}: write NAME=EXTENT, e.g. --at sequence=64")
    return name, int(size)
