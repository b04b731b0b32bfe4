"""doit verify RECIPE...: the comparison with the reference afresh."""

from __future__ import annotations

from pydoit.commands.build import Build


class Verify(Build):
    name = "verify"
    doc_purpose = "run the verify stage afresh, with all that it needs"
    afresh = frozenset({"verify"})
    only = ("verify",)
