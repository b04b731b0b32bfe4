"""doit unpack FILE: bring a bundle's stages into a workspace, and go on where the other machine stopped."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD, TRACEBACK, ModelbuildCommand
from pydoit.commands.build import Build, chosen_stages
from pydoit.errors import UserError
from pydoit.stages import ORDER
from pydoit.workspace import find_root

INTO = {"name": "into", "long": "into", "short": "", "type": str, "default": "",
        "help": "the workspace, or a folder that becomes one (default: the workspace around)"}  # fmt: skip
BUILD = {"name": "build", "long": "build", "short": "", "type": str, "default": "",
         "help": "then build these stages of the bundle's recipes, e.g. verify,profile"}  # fmt: skip
KEY = {"name": "key", "long": "key", "short": "", "type": list, "default": [],
       "help": "Ed25519 public key whose bundles are taken too (repeatable; `doit cache keygen` prints it)"}  # fmt: skip
UNSIGNED = {"name": "unsigned", "long": "unsigned", "short": "", "type": bool, "default": False,
            "help": "take a bundle that no trusted key signed: its recipes run code"}  # fmt: skip
OVERWRITE = {"name": "overwrite", "long": "overwrite", "short": "", "type": bool, "default": False,
             "help": "replace files of the workspace that are otherwise than in the bundle"}  # fmt: skip


class Unpack(ModelbuildCommand):
    name = "unpack"
    doc_purpose = "bring a bundle's stages into a workspace"
    doc_usage = "FILE"
    cmd_options = (INTO, BUILD, KEY, UNSIGNED, OVERWRITE, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        from pydoit.bundle.adopt import adopt
        from pydoit.bundle.unpack import unpack

        if len(arguments) != 1:
            raise UserError("which bundle? write `doit unpack FILE`")
        stages = options["build"]
        chosen_stages(stages)
        root = Path(options["into"]).resolve() if options["into"] else find_root(Path.cwd().resolve())
        if root is None:
            raise UserError("no workspace here or above; --into FOLDER makes one of the bundle")
        unpacked = unpack(
            Path(arguments[0]), root, options["key"], unsigned=options["unsigned"], overwrite=options["overwrite"]
        )
        for name in unpacked.written:
            sys.stdout.write(f"wrote {name}\n")
        faults = adopt(unpacked)
        for recipe, packed in unpacked.index.recipes.items():
            carried = [stage for stage in ORDER if stage in packed.stages and packed.stages[stage].is_carried]
            sys.stdout.write(f"{recipe}: {', '.join(carried)}\n")
        sys.stderr.write("".join(f"{line}\n" for line in faults))
        if faults or not stages:
            return EXIT_FAILED if faults else EXIT_GOOD
        os.chdir(root)
        return Build().parse_execute([*unpacked.index.recipes, "--stages", stages])
