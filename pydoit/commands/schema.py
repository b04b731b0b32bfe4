"""doit schema: the JSON schema of recipes, for editors (#:schema) and other tools."""

from __future__ import annotations

import sys
from typing import Any

from pydoit.commands.base import TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError

WORKSPACE = {"name": "workspace", "long": "workspace", "short": "", "type": bool, "default": False,
             "help": "the schema of modelbuild.toml instead"}  # fmt: skip


class Schema(ModelbuildCommand):
    name = "schema"
    doc_purpose = "print the JSON schema of recipes"
    cmd_options = (WORKSPACE, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        if arguments:
            raise UserError("doit schema takes no arguments; remove them")
        from pydoit.recipe import Recipe
        from pydoit.schema import schema_text
        from pydoit.workspace_file import WorkspaceFile

        sys.stdout.write(schema_text(WorkspaceFile if options["workspace"] else Recipe))
        return 0
