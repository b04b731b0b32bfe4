"""doit lock [RECIPE...]: write modelbuild.lock, or compare it with what is here."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD, EXIT_WRONG, TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.lockfile.drift import drifts
from pydoit.lockfile.entry import CHECKED_IN, PARTS, Entry
from pydoit.lockfile.file import FILE_NAME, Lock, read_lock, require_lock, write_lock
from pydoit.lockfile.guard import input_drift, make_pins
from pydoit.lockfile.observe import observe
from pydoit.lockfile.update import updated
from pydoit.nearest import nearest
from pydoit.session import Options, Session
from pydoit.workspace import Workspace, all_addresses, open_workspace

CHECK = {"name": "check", "long": "check", "short": "", "type": bool, "default": False,
         "help": "write nothing; a line for each difference from what is here, and exit status 1"}  # fmt: skip
UPGRADE = {"name": "upgrade", "long": "upgrade", "short": "", "type": bool, "default": False,
           "help": f"take everything as it is here, or only the parts that are named: {', '.join(PARTS)}"}  # fmt: skip


class LockCommand(ModelbuildCommand):
    name = "lock"
    doc_purpose = f"write {FILE_NAME}: sources, toolchain, records and artifact digests of each recipe"
    doc_usage = "[--check | --upgrade] [RECIPE[@VARIANT] ...] [PART ...]"
    cmd_options = (CHECK, UPGRADE, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        if options["check"] and options["upgrade"]:
            raise UserError("--check writes nothing, --upgrade does; choose one")
        workspace = open_workspace()
        known = all_addresses(workspace)
        names = [word for word in arguments if word in known or not (options["upgrade"] and word in PARTS)]
        parts = frozenset(word for word in arguments if word not in names)
        for name in names:
            if name not in known:
                raise UserError(
                    f"there is no recipe {name!r}; {nearest(name, [*known, *(PARTS if options['upgrade'] else ())])}"
                )
        if options["check"]:
            return _check(workspace, names, known)
        taken = (parts or frozenset(PARTS)) if options["upgrade"] else CHECKED_IN
        return _write(workspace, names, known, taken, is_part=bool(parts))


def _check(workspace: Workspace, names: list[str], known: list[str]) -> int:
    lock = require_lock(workspace.root)
    session = _open(workspace, names or known, lock, frozenset())
    lines = [f"{name}: is not in {FILE_NAME}; run `doit lock {name}`" for name in session.loaded if name not in lock]
    if not names:
        lines += [f"{name}: is in {FILE_NAME}, but no recipe; run `doit lock`" for name in lock if name not in known]
    session.loaded = {name: resolved for name, resolved in session.loaded.items() if name in lock}
    lines += [str(drift) for drift in input_drift(session, lock)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return EXIT_WRONG if session.broken else EXIT_FAILED if lines else EXIT_GOOD


def _write(workspace: Workspace, names: list[str], known: list[str], parts: frozenset[str], *, is_part: bool) -> int:
    lock = read_lock(workspace.root) or {}
    wanted = names or ([name for name in known if name in lock] if is_part else known)
    session = _open(workspace, wanted, lock, parts)
    kept = {name: entry for name, entry in lock.items() if names or is_part or name in known}
    for name in session.loaded:
        here = observe(session, name)
        if is_part and name not in lock:
            raise UserError(f"{name} is not in {FILE_NAME}; run `doit lock {name}` first")
        kept[name] = updated(lock.get(name), here, parts)
        _tell(name, lock.get(name), kept[name], here)
    unbuilt = [name for name in session.loaded if not kept[name].artifact]
    if unbuilt:
        sys.stdout.write(
            f"no artifact is locked of {', '.join(unbuilt)}: not built from this yet; `doit build`, then `doit lock`\n"
        )
    for name in sorted(lock.keys() - kept.keys()):
        sys.stdout.write(f"{name}: removed, there is no such recipe\n")
    changed = write_lock(workspace.root, kept)
    sys.stdout.write(f"{FILE_NAME}: {'written' if changed else 'unchanged'}, {len(kept)} recipes\n")
    return EXIT_WRONG if session.broken else EXIT_GOOD


def _open(workspace: Workspace, names: Iterable[str], lock: Lock, parts: frozenset[str]) -> Session:
    """The session with its recipes, under the locked arch unless that is taken anew; broken ones are told at once."""
    pins = {} if "arch" in parts else make_pins(lock, frozen=False)
    session = Session(workspace, Options(pins=pins))
    session.open(names)
    for error in session.broken.values():
        sys.stderr.write(f"{error}\n")
    return session


def _tell(name: str, before: Entry | None, after: Entry, here: Entry) -> None:
    """What changes in the file, and what stays though it is otherwise here."""
    out = sys.stdout
    taken = drifts(name, before, after) if before is not None else []
    if before is None:
        out.write(f"{name}: locked\n")
    for drift in taken:
        out.write(f"{name}: {drift.what}: {drift.change.old} -> {drift.change.new}\n")
    for drift in drifts(name, after, here):
        out.write(f"{name}: keeps {drift.what}: {drift.change.old} (here {drift.change.new}); {drift.remedy}\n")
    if before is not None and before.artifact != after.artifact and after.artifact:
        out.write(f"{name}: artifact locked\n")
    if not after.artifact:
        out.write(
            f"{name}: no artifact locked, since it was not built from this; `doit build {name}`, then `doit lock {name}`\n"
        )
