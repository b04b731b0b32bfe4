"""Findings about what a build costs: slow passes, passes that do not settle, passes that undo each other."""

from __future__ import annotations

from collections.abc import Iterator

from pydoit.diagnosis.facts import Facts
from pydoit.diagnosis.finding import Evidence, Finding

SLOW_SECONDS = 5.0
SLOW_SHARE = 0.3
IDLE_SECONDS = 2.0


def findings(facts: Facts) -> Iterator[Finding]:
    """At most one for each pass."""
    seconds = list(facts.optimize.get("pass_seconds") or [])
    log = list(facts.optimize.get("passes") or [])
    building = sum(seconds) + facts.compile.get("schedule_seconds", 0.0) + facts.compile.get("codegen_seconds", 0.0)
    for number, (spent, name) in enumerate(zip(seconds, facts.names, strict=False)):
        entry = log[number] if number < len(log) else {}
        iterations = Evidence("iterations", entry.get("iterations", 1))
        share = Evidence(
            "share of the build", spent / max(building, 1e-9), "", SLOW_SHARE, "optimize and compile, of this build"
        )
        told = Evidence("seconds", spent, "s", SLOW_SECONDS, "what a developer waits for without turning to something else")
        if entry.get("converged") is False:
            yield Finding(
                "unsettled",
                "compile",
                f"{name} still changes the module after {entry['iterations']} iterations",
                (iterations, told),
                "raise its `repeat`, or find the pass that undoes it (doit passes diff)",
                name,
                gain_ms=spent * 1000.0,
            )
        elif entry.get("returns_to") is not None:
            earlier = entry["returns_to"]
            between = ", ".join(facts.names[earlier + 1 : number + 1])
            back = "the imported one" if earlier < 0 else f"that after {facts.names[earlier]}"
            yield Finding(
                "round trip",
                "compile",
                f"after {name} the module is again {back}: {between} undo each other",
                (Evidence("passes in between", number - earlier), told),
                f"leave {between} out of passes.order",
                name,
                gain_ms=sum(seconds[earlier + 1 : number + 1]) * 1000.0,
            )
        elif spent >= SLOW_SECONDS and spent >= SLOW_SHARE * building:
            yield Finding(
                "slow pass",
                "compile",
                f"{name} takes {spent:.1f} s, {spent / building:.0%} of optimizing and compiling",
                (told, share, iterations),
                "see what it is worth (doit passes ablate), and leave it out or run it later, on a smaller module",
                name,
                gain_ms=spent * 1000.0,
            )
        elif entry.get("changed") is False and spent >= IDLE_SECONDS:
            yield Finding(
                "idle pass",
                "compile",
                f"{name} takes {spent:.1f} s and changes nothing",
                (Evidence("seconds", spent, "s", IDLE_SECONDS, "more than all other checks of a build take"),),
                "leave it out of passes.order",
                name,
                gain_ms=spent * 1000.0,
            )
