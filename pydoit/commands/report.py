"""doit report RECIPE: the last build as a table, a page, a summary for a pull request, a trace, or as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydoit.commands.base import TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.history import write_atomically
from pydoit.keys import parse_json
from pydoit.publish import PAGE, REPORT, TRACE
from pydoit.workspace import Workspace, open_workspace

FORMS = [("table", "for a terminal"), ("json", "one JSON document"), ("html", "one page, self-contained"),
         ("markdown", "a summary for a pull request"), ("trace", "one call, for chrome://tracing and Perfetto")]  # fmt: skip
FORMAT = {"name": "format", "long": "format", "short": "", "type": str, "default": "table", "choices": FORMS,
          "help": "form of the output"}  # fmt: skip
OUTPUT = {"name": "output", "long": "output", "short": "o", "type": str, "default": "",
          "help": "file to write; else html and trace go beside the artifact, the others to stdout"}  # fmt: skip


class Report(ModelbuildCommand):
    name = "report"
    doc_purpose = "show the last build of recipes"
    doc_usage = "[RECIPE[@VARIANT] ...]"
    cmd_options = (FORMAT, OUTPUT, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        workspace = open_workspace()
        names = arguments or list(workspace.settings.default)
        form, output = options["format"], options["output"]
        if not names:
            raise UserError("which recipe? write `doit report RECIPE`")
        if form == "json" and len(names) > 1:
            raise UserError("JSON is one document for one recipe; name one")
        if output and len(names) > 1:
            raise UserError("--output is one file for one recipe; name one")
        if output and form == "table":
            raise UserError("--output: a table goes to the terminal; choose --format html, markdown, trace or json")
        for name in names:
            _show(workspace, name, _read(workspace, name), form, output)
        return 0


def _show(workspace: Workspace, name: str, report: dict[str, Any], form: str, output: str) -> None:
    if form == "table":
        from pydoit.report.table import print_table

        print_table(report)
        return
    beside = {"html": PAGE, "trace": TRACE}.get(form)
    text = _text(name, report, form)
    if not output and beside is None:
        sys.stdout.write(text)
        return
    path = Path(output) if output else workspace.artifacts / name / str(beside)
    write_atomically(path, text.encode())
    is_inside = path.is_absolute() and path.is_relative_to(workspace.root)
    sys.stdout.write(f"{path.relative_to(workspace.root).as_posix() if is_inside else path}\n")


def _text(name: str, report: dict[str, Any], form: str) -> str:
    if form == "json":
        return json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if form == "html":
        from pydoit.report.page import render_page

        return render_page(report)
    if form == "markdown":
        from pydoit.report.markdown import make_markdown

        return make_markdown(report)
    from pydoit.report.trace import make_trace

    trace = make_trace(report)
    if trace is None:
        raise UserError(f"{name} has no timeline of a traced call; run `doit profile {name}` where the model can run")
    return json.dumps(trace, indent=1) + "\n"


def _read(workspace: Workspace, name: str) -> dict[str, Any]:
    """The report of the last build, with the peers as their file has them now; as they were where it cannot be read."""
    from pydoit.report.peers import read_peers

    workspace.recipe_file(name.partition("@")[0])
    path = workspace.artifacts / name / REPORT
    try:
        value: dict[str, Any] = parse_json(path.read_bytes())
        if not isinstance(value, dict) or "stages" not in value:
            raise ValueError("not a report")
    except FileNotFoundError:
        raise UserError(f"{name} has not been built here; run `doit build {name}`") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); run `doit build {name}` again") from None
    if workspace.settings.peers:
        try:
            value["peers"] = read_peers(workspace, name)
        except UserError as error:
            sys.stderr.write(f"{name}: {error}\n")
    return value
