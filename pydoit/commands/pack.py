"""doit pack RECIPE...: what was built here as one file, with which another machine goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydoit.commands.base import EXIT_GOOD, TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.resolve import Pins
from pydoit.session import Options, Session
from pydoit.workspace import Workspace, open_workspace

OUTPUT = {"name": "output", "long": "output", "short": "o", "type": str, "default": "",
          "help": "the file to write (default: RECIPE.bundle, RECIPE.results with --results)"}  # fmt: skip
WEIGHTS = {"name": "weights", "long": "weights", "short": "", "type": bool, "default": True, "inverse": "no-weights",
           "help": "--no-weights: leave out model and weights; the other machine fetches and packs them itself"}  # fmt: skip
RESULTS = {"name": "results", "long": "results", "short": "", "type": bool, "default": False,
           "help": "only what verify and profile measured here, to be taken back to where the recipe was built"}  # fmt: skip
FROZEN = {"name": "frozen", "long": "frozen", "short": "", "type": bool, "default": False,
          "help": "pack what `doit build --locked` or `--frozen` built: arch and source of modelbuild.lock"}  # fmt: skip


class Pack(ModelbuildCommand):
    name = "pack"
    doc_purpose = "write a bundle with which another machine verifies and profiles what was built here"
    doc_usage = "RECIPE[@VARIANT] ..."
    cmd_options = (OUTPUT, WEIGHTS, RESULTS, FROZEN, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        from pydoit.bundle.pack import pack

        if not arguments:
            raise UserError("which recipe? write `doit pack RECIPE`")
        workspace = open_workspace()
        session = Session(workspace, Options(pins=_pins(workspace) if options["frozen"] else {}))
        session.open(arguments)
        for error in session.broken.values():
            raise error
        recipes = list(session.loaded)
        name = f"{recipes[0]}{f'+{len(recipes) - 1}' if len(recipes) > 1 else ''}"
        path = Path(options["output"] or f"{name}.{'results' if options['results'] else 'bundle'}")
        packed = pack(session, recipes, path, results=options["results"], weights=options["weights"])
        for recipe, stages in packed.recipes.items():
            sys.stdout.write(f"{recipe}: {', '.join(stages)}\n")
        signed = "signed" if packed.is_signed else "not signed (MODELBUILD_SIGNING_KEY or MODELBUILD_CACHE_SECRET would)"
        sys.stdout.write(f"{path}: {packed.files} files, {packed.bytes / 1e6:.1f} MB, {signed}\n")
        return EXIT_GOOD


def _pins(workspace: Workspace) -> dict[str, Pins]:
    from pydoit.lockfile.file import require_lock
    from pydoit.lockfile.guard import make_pins

    return make_pins(require_lock(workspace.root), frozen=True)
