"""doit diff A B: what differs between two recipes, revisions or artifacts."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from pydoit import machine, process
from pydoit.commands.base import EXIT_GOOD, FORMAT, TRACEBACK, ModelbuildCommand
from pydoit.errors import StageError, UserError
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
    tick = partial(console.running, side.recipe, "kernels")
    console.started(side.recipe, "kernels")
    log = session.workspace.state / "logs" / side.recipe / "kernels.log"
    with session.store.scratch() as folder:
        (folder / "out").mkdir()
        (folder / "inputs").mkdir()
        (folder / "inputs/module.json").symlink_to(module)
        job = process.make_job("kernels", {}, {"side": folder / "inputs"}, folder / "out", session.workspace.root)
        with machine.working(lambda seconds: tick(seconds, "waiting for a measurement on this machine")):
            result = process.run_worker(job, folder, log, tick).result
    if result["status"] != "built":
        raise StageError(f"kernels failed: {result.get('reason', '')}")
    digests: dict[str, str] = result["measurements"]["side"]
    return digests
