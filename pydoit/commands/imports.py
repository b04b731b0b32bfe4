"""doit plan --imports: every operator of a model that cannot be imported, before anything is built."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydoit import process
from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD, EXIT_WRONG
from pydoit.console import Console
from pydoit.session import Session


def print_imports(session: Session, form: str) -> int:
    """Fetch each recipe's model, look at it in a worker, and print what it lacks; 1 where something cannot be imported."""
    found = [_inspect(session, recipe) for recipe in session.loaded]
    if form == "json":
        sys.stdout.write(json.dumps({"schema": 1, "imports": found}, indent=2) + "\n")
    else:
        for item in found:
            sys.stdout.write("".join(f"{line}\n" for line in _lines(item)))
    bad = any(item["unsupported"] or item["error"] for item in found)
    return EXIT_WRONG if session.broken else EXIT_FAILED if bad else EXIT_GOOD


def _inspect(session: Session, recipe: str) -> dict[str, Any]:
    console = Console()

    def tick(seconds: float, text: str) -> None:
        console.running(recipe, "import", seconds, text or "looking at the model")

    process.reset()
    fetched = session.build(recipe, "fetch", tick)
    if fetched.status in ("failed", "deferred"):
        return {"recipe": recipe, "unsupported": [], "error": f"fetch: {fetched.reason}"}
    node = session.node(recipe, "import")
    with session.store.in_use(), session.store.scratch() as folder:
        (folder / "out").mkdir()
        inputs = session.builder.lay_out(node, folder / "inputs")
        job = process.make_job("inspect_import", node.spec, inputs, folder / "out", session.workspace.root)
        log = session.workspace.state / "logs" / recipe / "imports.log"
        result = process.run_worker(job, folder, log, tick).result
    good = result["status"] == "built"
    return {
        "recipe": recipe,
        "unsupported": result["measurements"]["unsupported"] if good else [],
        "error": None if good else result["reason"],
    }


def _lines(item: dict[str, Any]) -> list[str]:
    if item["error"]:
        return [f"{item['recipe']}: {item['error']}"]
    if not item["unsupported"]:
        return [f"{item['recipe']}: every operator can be imported"]
    rows = [f"  {row['operator']} ({row['count']}) at {row['where']}: {row['hint']}" for row in item["unsupported"]]
    return [f"{item['recipe']}: {len(rows)} kinds of operators cannot be imported", *rows]
