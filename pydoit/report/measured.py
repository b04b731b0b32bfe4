"""The profile of a report with the roofline of the machine that measured it, and the diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def judged(
    store: Path, target: Mapping[str, Any], profile: dict[str, Any] | None, stages: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The profile with bounds, and what the diagnosis says; as it is, and None, where the machine was not calibrated."""
    if not profile or not profile.get("kernels"):
        return profile, None
    from pydoit import tools
    from pydoit.diagnosis import Facts, diagnose
    from pydoit.profiling import ceilings

    known = ceilings.read(store, str(target.get("kind")), int(profile["threads"]))
    if known is None or known["device"] != profile["device"]:
        return profile, None
    measured = {name: stages.get(name, {}).get("measurements") or {} for name in ("optimize", "compile")}
    facts = Facts(
        profile, known, measured["optimize"], measured["compile"], target, tools.version(tools.ONEDNN) != tools.ABSENT
    )
    return facts.annotated, diagnose(facts).to_json()
