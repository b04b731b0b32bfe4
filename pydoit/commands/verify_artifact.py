"""doit verify-artifact PATH...: every file of an artifact against its provenance, and its signature, offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD, TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.provenance.check import artifact_faults, summary

KEY = {"name": "key", "long": "key", "short": "", "type": str, "default": "",
       "help": "file of the Ed25519 public key (PEM) that must have signed it"}  # fmt: skip


class VerifyArtifact(ModelbuildCommand):
    name = "verify-artifact"
    doc_purpose = "check an artifact's files, provenance and signature; works offline, outside a workspace"
    doc_usage = "PATH ..."
    cmd_options = (KEY, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        if not arguments:
            raise UserError("which artifact? write `doit verify-artifact artifacts/RECIPE`")
        key = Path(options["key"]) if options["key"] else None
        status = EXIT_GOOD
        for argument in arguments:
            faults = list(artifact_faults(Path(argument), key))
            signed = ", signed by the key" if key is not None else ""
            lines = faults or [f"good{signed}; {summary(Path(argument))}"]
            sys.stdout.write("".join(f"{argument}: {line}\n" for line in lines))
            status = EXIT_FAILED if faults else status
        return status
