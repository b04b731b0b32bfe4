"""doit profile RECIPE...: the measurement afresh."""

from __future__ import annotations

from pydoit.commands.build import Build


class Profile(Build):
    name = "profile"
    doc_purpose = "run the profile stage afresh, with all that it needs"
    afresh = frozenset({"profile"})
    only = ("profile",)
