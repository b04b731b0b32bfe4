"""Puts together the whole report of a build, and writes what is made of it beside the artifact."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from pydoit.errors import ModelBuildError
from pydoit.history import write_atomically
from pydoit.keys import pretty
from pydoit.publish import LIBRARY, PAGE, REPORT, TRACE
from pydoit.report.data import make_report
from pydoit.report.earlier import DIGEST, locked_of, previous_of, profiles, told_time
from pydoit.report.environment import make_environment
from pydoit.report.figures import figures_of
from pydoit.report.page import render_page
from pydoit.report.peers import read_peers
from pydoit.report.trace import make_trace

if TYPE_CHECKING:
    from pydoit.session import Session

_ADDRESS = re.compile(r"https?://[^\s\"']+")


def complete_report(session: Session, recipe: str) -> dict[str, Any]:
    """The report of the recorded stages with all that its page shows beside them.

    A lock file or a file of peers that cannot be read is told, and left out: it is no fault of the build.
    """
    resolved, stages = session.loaded[recipe], session.history.stages(recipe)
    workspace = session.workspace
    report = make_report(workspace, recipe, resolved.target, stages)
    report["time"] = told_time(time.time())
    report["recipe_values"] = without_credentials(resolved.values)
    report["environment"] = make_environment(resolved.nodes)
    published = report["library"] is not None
    files: Mapping[str, str] = stages.get("package", {}).get("files", {}) if published else {}
    report["artifact"] = _artifact(workspace.artifacts / recipe, files)
    rows = profiles(workspace, recipe)
    report["previous"] = previous_of(rows, report)
    report["locked"], report["peers"] = None, []
    try:
        report["locked"] = locked_of(workspace, recipe, rows, files)
        report["peers"] = read_peers(workspace, recipe)
    except ModelBuildError as error:
        session.tell(f"{recipe}: report: {error}")
    return report


def journal_figures(report: Mapping[str, Any], stages: Mapping[str, Any]) -> dict[str, Any]:
    """What the journal keeps of a measured profile: the figures, and which library they are of."""
    library = stages.get("compile", {}).get("files", {}).get(LIBRARY)
    return {**figures_of(report), **({DIGEST: library} if library else {})}


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Write report.json, and what is drawn from it."""
    write_atomically(folder / REPORT, pretty(report))
    write_page(folder / PAGE, report)
    trace = make_trace(report)
    if trace is None:
        (folder / TRACE).unlink(missing_ok=True)
    else:
        write_atomically(folder / TRACE, pretty(trace))


def write_page(path: Path, report: Mapping[str, Any]) -> None:
    """Write the page to a file."""
    write_atomically(path, render_page(report).encode())


def without_credentials(value: Any) -> Any:
    """Values whose addresses have lost user, password and query, which may hold a secret."""
    if isinstance(value, str):
        return _ADDRESS.sub(lambda found: _bare(found[0]), value)
    if isinstance(value, Mapping):
        return {key: without_credentials(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_credentials(item) for item in value]
    return value


def _bare(address: str) -> str:
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _artifact(folder: Path, files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The published files with their sizes."""
    return [
        {"path": name, "sha256": sha256, "bytes": (folder / name).stat().st_size}
        for name, sha256 in sorted(files.items())
        if (folder / name).is_file()
    ]
