"""doit cache stats|gc|verify|push|pull|keygen: upkeep of the store, and what machines share of it."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from typing import Any

from pydoit import collect
from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD, FORMAT, TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.nearest import nearest
from pydoit.store import Store
from pydoit.workspace import Workspace, open_workspace

LOCAL = ("stats", "gc", "verify")
ACTIONS = (*LOCAL, "push", "pull", "keygen")
MAX_SIZE = {"name": "max_size", "long": "max-size", "short": "", "type": str, "default": "",
            "help": "gc: size to shrink to, e.g. 20GB (default: the workspace's)"}  # fmt: skip
MAX_AGE = {"name": "max_age", "long": "max-age", "short": "", "type": float, "default": None,
           "help": "gc: also drop what was not used for so many days"}  # fmt: skip


class Cache(ModelbuildCommand):
    name = "cache"
    doc_purpose = "show, check or shrink the store; share it with other machines"
    doc_usage = "stats|gc|verify|keygen, or push|pull [RECIPE[@VARIANT] ...]"
    cmd_options = (FORMAT, MAX_SIZE, MAX_AGE, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        action, names = (arguments or [""])[0], arguments[1:]
        if action not in ACTIONS or (names and action not in ("push", "pull")):
            given = " ".join(arguments)
            raise UserError(f"doit cache {given}: {nearest(given, list(ACTIONS))}; write `doit cache stats`")
        facts = self._act(action, names, options)
        if options["format"] == "json":
            sys.stdout.write(json.dumps(facts, indent=2) + "\n")
        else:
            for name, value in facts.items():
                sys.stdout.write(f"{name:<16}{f'{value:,}' if isinstance(value, int) else value}\n")
        return EXIT_FAILED if facts.get("damaged") or facts.get("fault") else EXIT_GOOD

    def _act(self, action: str, names: list[str], options: dict[str, Any]) -> dict[str, Any]:
        if action == "keygen":
            from pydoit.signing_keys import new_signing_key, public_key

            key = new_signing_key()
            return {"signing_key": key.hex(), "trusted_key": public_key(key).hex()}
        workspace = open_workspace()
        if action in LOCAL:
            store = Store(workspace.store)
            return {"path": str(store.root), **self._keep_up(action, store, workspace, options)}
        from pydoit.remote import share

        return share.push(workspace, names) if action == "push" else share.pull(workspace, names)

    def _keep_up(self, action: str, store: Store, workspace: Workspace, options: dict[str, Any]) -> dict[str, Any]:
        if action == "stats":
            return asdict(collect.measure(store))
        if action == "verify":
            damaged = collect.verify(store)
            return {"damaged": len(damaged), **{f"removed {name[:12]}": "its stages will run again" for name in damaged}}
        age = options["max_age"]
        if age is not None and not 0 <= age < math.inf:
            raise UserError(f"--max-age {age}: not a number of days; write --max-age 30")
        limit = collect.parse_size(options["max_size"] or workspace.settings.cache_max_size)
        return asdict(collect.collect(store, limit, age))
