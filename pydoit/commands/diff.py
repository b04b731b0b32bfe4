"""doit diff A B: what differs between two recipes, revisions or artifacts."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydoit import process
from pydoit.apart import run_apart
from pydoit.commands.base import EXIT_GOOD, FORMAT, TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.workspace import open_workspace

if TYPE_CHECKING:
    from pydoit.console import Console
    from pydoit.regression.sides import Side


class Diff(ModelbuildCommand):
    name = "diff"
    doc_purpose = "show what differs between two artifacts: recipe, tools, kernels, records, size, accuracy, latency"
    doc_usage = "A B, each RECIPE[@VARIANT][:REVISION] or an artifact's folder"
    cmd_options = (FORMAT, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        from pydoit.console import Console
        from pydoit.regression.difference import sections, text
        from pydoit.regression.facts import facts_of
        from pydoit.regression.sides import open_side

        if len(arguments) != 2:
            raise UserError("doit diff takes two artifacts; write `doit diff A B`, e.g. `doit diff minilm:main minilm`")
        workspace = open_workspace()
        process.reset()
        console = Console()
        with ExitStack() as stack:
            first, second = (stack.enter_context(open_side(workspace, name, console)) for name in arguments)
            known = first.session is not None and second.session is not None
            kernels = (_kernels(first, console), _kernels(second, console)) if known else None
            facts = facts_of(first), facts_of(second)
            found = sections(*facts, kernels)
        if options["format"] == "json":
            document = {
                "schema": 1,
                "first": arguments[0],
                "second": arguments[1],
                "sections": [asdict(item) for item in found],
            }
            sys.stdout.write(json.dumps(document, indent=2) + "\n")
        else:
            sys.stdout.write(text(*facts, found))
        return EXIT_GOOD


def _kernels(side: Side, console: Console) -> dict[str, str]:
    """Digests of the kernels of a side that was built from a recipe."""
    session = side.session
    assert session is not None
    module = session.results(side.recipe)["optimize"].files["module.json"].path
    digests: dict[str, str] = run_apart(
        session.workspace, session.store, "kernels", {}, {"side": {"module.json": module}},
        label=side.recipe, log=f"{side.recipe}/kernels.log", console=console,
    )["side"]  # fmt: skip
    return digests
