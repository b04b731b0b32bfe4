"""doit diagnose RECIPE: what bounds it, what to change, and with --try whether that helps."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydoit import process
from pydoit.commands.base import EXIT_GOOD, FORMAT, SET, TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.workspace import open_workspace

TRY = {"name": "try", "long": "try", "short": "", "type": bool, "default": False,
       "help": "apply the changes that are offered, measure each beside the best so far, until nothing gains more"}  # fmt: skip
FRESH = {"name": "fresh", "long": "fresh", "short": "", "type": bool, "default": False,
         "help": "measure the profile and the ceilings again"}  # fmt: skip


class Diagnose(ModelbuildCommand):
    name = "diagnose"
    doc_purpose = "name a recipe's bottlenecks with evidence and what to change; --try measures the changes"
    doc_usage = "RECIPE[@VARIANT]"
    cmd_options = (TRY, FRESH, SET, FORMAT, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        if len(arguments) != 1:
            raise UserError("doit diagnose takes one recipe; write `doit diagnose RECIPE`")
        from pydoit.diagnosis.loop import improve
        from pydoit.diagnosis.show import loop_text, text
        from pydoit.diagnosis.subject import Subject
        from pydoit.experiments.lab import Lab

        workspace = open_workspace()
        workspace.make_state()
        process.reset()
        subject = Subject(Lab(workspace, arguments[0], tuple(options["set"])), fresh=options["fresh"])
        if not options["try"]:
            facts, found = subject.diagnose()
            document = {"schema": 1, "recipe": arguments[0], **found.to_json()}
            shown = text(arguments[0], facts, found)
        else:
            loop = improve(subject, sys.stderr.write)
            document = {"schema": 1, "recipe": arguments[0], **loop.to_json()}
            shown = loop_text(arguments[0], loop)
            subject.lab.save("diagnose.json", document)
        sys.stdout.write(json.dumps(document, indent=2) + "\n" if options["format"] == "json" else shown)
        return EXIT_GOOD
