"""doit passes [NAME|PRESET]: the passes that a recipe may order, and the presets made of them."""

from __future__ import annotations

import sys
from typing import Any

from pydoit import passes
from pydoit.commands.base import TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.nearest import nearest


class Passes(ModelbuildCommand):
    name = "passes"
    doc_purpose = "list the passes and presets of [passes]"
    doc_usage = "[PASS|PRESET]"
    cmd_options = (TRACEBACK,)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        if len(arguments) > 1:
            raise UserError("doit passes takes one name; remove the others")
        if not arguments:
            width = max(map(len, passes.PASSES))
            for name, info in sorted(passes.PASSES.items()):
                sys.stdout.write(f"{name:<{width}}  {info.summary}\n")
            sys.stdout.write(f"presets: {', '.join(passes.PRESETS)}\n")
        elif arguments[0] in passes.PRESETS:
            for use in passes.PRESETS[arguments[0]]:
                name, chosen = passes.split_use(use)
                sys.stdout.write(f"{name}{f'  {chosen}' if chosen else ''}\n")
        elif arguments[0] in passes.PASSES:
            info = passes.PASSES[arguments[0]]
            sys.stdout.write(f"{arguments[0]}: {info.summary}\nfrom {info.factory}\n")
            for option, default in info.options.items():
                sys.stdout.write(f"  {option} = {default!r}\n")
        else:
            known = [*passes.PRESETS, *passes.PASSES]
            raise UserError(f"there is no pass or preset {arguments[0]!r}; {nearest(arguments[0], known)}")
        return 0
