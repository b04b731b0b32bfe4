"""doit report RECIPE: the last build as a table or as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydoit.commands.base import FORMAT, TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.workspace import Workspace, open_workspace


class Report(ModelbuildCommand):
    name = "report"
    doc_purpose = "show the last build of recipes"
    doc_usage = "[RECIPE[@VARIANT] ...]"
    cmd_options = (FORMAT, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        workspace = open_workspace()
        names = arguments or list(workspace.settings.default)
        if not names:
            raise UserError("which recipe? write `doit report RECIPE`")
        if options["format"] == "json" and len(names) > 1:
            raise UserError("JSON is one document for one recipe; name one")
        for name in names:
            report = _read(workspace, name)
            if options["format"] == "json":
                sys.stdout.write(json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
            else:
                from pydoit.report.table import print_table

                print_table(report)
        return 0


def _read(workspace: Workspace, name: str) -> dict[str, Any]:
    workspace.recipe_file(name.partition("@")[0])
    path = workspace.artifacts / name / "report.json"
    try:
        value: dict[str, Any] = json.loads(path.read_bytes())
        if not isinstance(value, dict) or "stages" not in value:
            raise ValueError("not a report")
    except FileNotFoundError:
        raise UserError(f"{name} has not been built here; run `doit build {name}`") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); run `doit build {name}` again") from None
    return value
