"""doit plan [RECIPE...]: what a build would do, stage by stage, without doing it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from pydoit.commands import imports
from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD, EXIT_WRONG, FORMAT
from pydoit.commands.build import Build
from pydoit.session import Session

IMPORTS = {"name": "imports", "long": "imports", "short": "", "type": bool, "default": False,
           "help": "fetch the models and list every operator that cannot be imported"}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """What a build would do with one stage."""

    recipe: str
    stage: str
    action: str
    """hit | restore | run | deferred | depends"""
    reason: str = ""


class Plan(Build):
    name = "plan"
    doc_purpose = "tell what doit build would do and why; the same as doit build --dry-run"
    cmd_options = (*Build.cmd_options, FORMAT, IMPORTS)

    def build(self, options: dict[str, Any], names: list[str]) -> int:
        session = self.open_session(options, names)
        if not self.keeps_lock(session, options):
            return EXIT_WRONG if session.broken else EXIT_FAILED
        if options["imports"]:
            return imports.print_imports(session, options["format"])
        return print_plan(session, options["format"])


def make_plan(session: Session) -> list[Step]:
    """Steps of all loaded recipes. A stage that reads an output not yet built is marked `depends`."""
    stages = session.stages_needed(session.options.stages)
    return [_step(session, recipe, stage) for recipe in session.loaded for stage in session.stages(recipe, stages)]


def _step(session: Session, recipe: str, stage: str) -> Step:
    result = session.examine(recipe, stage)
    if result is None:
        return _unknown(session, recipe, stage)
    if result.status in ("deferred", "skipped"):
        return Step(recipe, stage, result.status, result.reason)
    action = "restore" if result.status == "restored" else "hit"
    if stage == "package":
        node, gates = session.node(recipe, stage), session.loaded[recipe].gates
        missed = session.builder.gate_failures(node, gates)
        if missed:
            return Step(recipe, stage, "fail", "; ".join(missed))
        if action == "hit" and not session.builder.artifact_is_whole(node, gates):
            return Step(recipe, stage, "restore", "artifacts/ does not hold this build")
    return Step(recipe, stage, action, result.reason)


def _unknown(session: Session, recipe: str, stage: str) -> Step:
    node = session.node(recipe, stage)
    if stage in session.options.afresh:
        return Step(recipe, stage, "run", "asked for afresh")
    waits = [name for name in node.reads if session.builder.results.get((recipe, name)) is None]
    if waits:
        return Step(recipe, stage, "depends", f"on what {', '.join(waits)} will give")
    document, _ = session.builder.identify(node)
    reasons = session.history.reasons(recipe, stage, document or {})
    return Step(recipe, stage, "run", "; ".join(map(str, reasons)) or "its output is not in the store")


def print_plan(session: Session, form: str = "table") -> int:
    """The plan on stdout; the exit status."""
    steps = make_plan(session)
    if form == "json":
        rows = [{"recipe": step.recipe, "stage": step.stage, "action": step.action, "reason": step.reason} for step in steps]
        sys.stdout.write(json.dumps({"schema": 1, "steps": rows}, indent=2) + "\n")
    else:
        for step in steps:
            sys.stdout.write(f"{step.recipe}: {step.stage:<9} {step.action:<8} {step.reason}".rstrip() + "\n")
    return EXIT_WRONG if session.broken else EXIT_GOOD
