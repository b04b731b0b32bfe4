"""doit why RECIPE [STAGE]: what changed since the last build, or why the last one ran what it ran."""

from __future__ import annotations

import sys
from typing import Any

from pydoit.commands.base import SET, TRACEBACK, ModelbuildCommand
from pydoit.commands.plan import make_plan
from pydoit.errors import UserError
from pydoit.nearest import nearest
from pydoit.session import Options, Session
from pydoit.stages import ORDER
from pydoit.workspace import open_workspace


class Why(ModelbuildCommand):
    name = "why"
    doc_purpose = "tell why stages would run, or why they last ran: old value -> new value"
    doc_usage = "RECIPE[@VARIANT] [STAGE]"
    cmd_options = (SET, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        if not 1 <= len(arguments) <= 2:
            raise UserError("doit why takes a recipe and perhaps a stage; write `doit why RECIPE [STAGE]`")
        recipe, stages = arguments[0], tuple(arguments[1:]) or ORDER
        if stages[0] not in ORDER:
            raise UserError(f"there is no stage {stages[0]!r}; {nearest(stages[0], list(ORDER))}")
        session = Session(open_workspace(), Options(sets=tuple(options["set"])))
        session.open([recipe])
        for error in session.broken.values():
            raise error
        for step in make_plan(session):
            if step.stage in stages:
                sys.stdout.write(f"{step.stage}: {_explain(session, recipe, step.stage, step.action, step.reason)}\n")
        return 0


def _explain(session: Session, recipe: str, stage: str, action: str, reason: str) -> str:
    if action == "run":
        return f"would run: {reason}"
    if action == "depends":
        return f"may run: it depends {reason}"
    if action != "hit":
        return f"{action}: {reason}"
    because = session.history.stages(recipe).get(stage, {}).get("because", "")
    return "up to date" + (f"; last built because {because}" if because else "")
