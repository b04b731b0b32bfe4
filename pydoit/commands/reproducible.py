"""doit build --check-reproducible: builds twice in different surroundings and tells what differs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD, EXIT_WRONG
from pydoit.reproduce.twins import Verdict, build_twice
from pydoit.session import Session

if TYPE_CHECKING:
    from pydoit.commands.build import Build


def check_reproducible(command: Build, session: Session, options: dict[str, Any]) -> int:
    """Fetch here, build twice elsewhere; a line for each recipe and for each difference, and the exit status."""
    if not session.loaded:
        return EXIT_WRONG
    session.options.stages = ("fetch",)
    command.run_stages(session, options)
    if "failed" in session.statuses():
        return EXIT_FAILED
    keep = session.workspace.state / "reproduce"
    with session.store.in_use():
        verdicts = build_twice(session, options["set"], keep)
    for verdict in verdicts:
        kept = (keep / verdict.recipe).relative_to(session.workspace.root).as_posix()
        sys.stdout.write("".join(f"{line}\n" for line in _lines(verdict, kept)))
    if session.broken:
        return EXIT_WRONG
    return EXIT_FAILED if any(verdict.differing for verdict in verdicts) else EXIT_GOOD


def _lines(verdict: Verdict, kept: str) -> Iterator[str]:
    if not verdict.differing:
        yield f"{verdict.recipe}: reproducible, {len(verdict.files)} files the same in two builds ({verdict.varied})"
        return
    yield f"{verdict.recipe}: not reproducible; first different in {verdict.stage}; both are kept in {kept}/"
    for name, lines in verdict.differing.items():
        yield from (f"  {name}: {line}" for line in lines)
