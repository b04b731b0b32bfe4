"""`doit build --locked` and `--frozen`: what the lock file settles for a session, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable

from pydoit.errors import UserError
from pydoit.lockfile.drift import Drift, drifts
from pydoit.lockfile.entry import Entry
from pydoit.lockfile.file import FILE_NAME, Lock
from pydoit.lockfile.observe import observe_inputs
from pydoit.resolve import SOURCE_KEYS, Pins
from pydoit.session import Session


def make_pins(lock: Lock, *, frozen: bool) -> dict[str, Pins]:
    """What stands for `arch = "native"`, and with `frozen` the model's reference, by recipe."""
    return {name: Pins(entry.arch, _source(entry) if frozen else None) for name, entry in lock.items()}


def require_entries(session: Session, lock: Lock) -> None:
    """Set recipes aside as broken that are not in the lock file."""
    for recipe in [name for name in session.loaded if name not in lock]:
        del session.loaded[recipe]
        session.broken[recipe] = UserError(f"{recipe} is not in {FILE_NAME}; run `doit lock {recipe}` and check it in")


def input_drift(session: Session, lock: Lock) -> list[Drift]:
    """Every difference of the loaded recipes that shows before anything runs."""
    return [drift for name in session.loaded for drift in drifts(name, lock[name], observe_inputs(session, name))]


def expect_artifacts(session: Session, lock: Lock) -> None:
    """Let nothing be published that is not the locked artifact."""
    for recipe in session.loaded:
        session.builder.locked[recipe] = {name: file.sha256 for name, file in lock[recipe].artifact.items()}


def output_drift(session: Session, lock: Lock) -> list[Drift]:
    """After a build: files that were fetched meanwhile, and the artifacts."""
    fetched = [drift for drift in input_drift(session, lock) if drift.part == "sources"]
    return [*fetched, *_artifacts(session, session.loaded)]


def foreign_arch(session: Session, lock: Lock) -> list[str]:
    """A line for each recipe whose locked arch this CPU cannot run."""
    return [
        f"{name}: is locked for {lock[name].arch}, which this CPU cannot run; it is compiled here, verified elsewhere"
        for name in session.loaded
        if lock[name].arch
        and any(result.status == "deferred" and "needs a CPU" in result.reason for result in session.results(name).values())
    ]


def _artifacts(session: Session, recipes: Iterable[str]) -> list[Drift]:
    found = [(name, change) for name in recipes for change in session.builder.artifact_drift(session.node(name, "package"))]
    return [Drift(name, "artifact", change) for name, change in found]


def _source(entry: Entry) -> dict[str, str]:
    model = entry.recipe.get("model", {})
    return {key: model[key] for key in SOURCE_KEYS if key in model}
