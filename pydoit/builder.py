"""Brings one stage up to date: key, store lookup, worker, commit, publication."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydoit import gates, machine, publish
from pydoit.digest import files_below
from pydoit.errors import ModelBuildError, StageError, UserError
from pydoit.history import History
from pydoit.keys import Change, changes, digest_of
from pydoit.locks import locked
from pydoit.nodes import Documents, Node, select
from pydoit.process import Outcome, make_job, run_worker
from pydoit.results import File, Result
from pydoit.stages import MEASURING
from pydoit.store import Entry, Store
from pydoit.workspace import Workspace

if TYPE_CHECKING:
    from pydoit.bundle.adopted import Adopted
    from pydoit.remote import RemoteCache

FROM_REMOTE = "from the remote cache"
FROM_BUNDLE = "from a bundle"
READ_IN_PLACE = "read in place"
Tick = Callable[[float, str], None]
Gates = Sequence[Mapping[str, Any]]


class Builder:
    """The stages of one command over one store; results are kept by (recipe, stage)."""

    def __init__(self, workspace: Workspace, store: Store, history: History, afresh: frozenset[str],
                 remote: RemoteCache | None = None, adopted: Adopted | None = None) -> None:  # fmt: skip
        self.workspace = workspace
        self.store = store
        self.history = history
        self.afresh = afresh
        self.remote = remote
        self.adopted = adopted
        self.committed: list[Entry] = []
        self.results: dict[tuple[str, str], Result] = {}
        self.locked: dict[str, Mapping[str, str]] = {}
        """File -> sha256 that a recipe's package must have, where the lock file is to be kept."""
        self._documents = Documents(workspace.root)

    def result(self, node: Node, stage: str) -> Result | None:
        return self.results.get((node.recipe, stage))

    def examine(self, node: Node) -> Result | None:
        """What can be said without running anything: a hit, a deferral; None when it has to run or nothing is known.

        Reads the store and the workspace, changes neither but for dropping damaged entries. What the remote cache has
        counts as restored, though none of its files are here yet: the entry tells their digests.
        """
        blocked = self._blocked(node)
        if blocked is not None:
            return blocked
        document, key = self.identify(node)
        if document is None or key is None:
            return None
        if node.stage == "fetch" and self._needs_no_worker(node):
            return self._local_result(node, key, document)
        entry = self.store.lookup(key)
        if entry is not None:
            return self.found(node, entry)
        entry = self.adopted.find(node.recipe, node.stage, key) if self.adopted is not None else None
        if entry is not None:
            return self.found(node, entry, _from_bundle(entry, document))
        entry = self.remote.peek(key) if self.remote is not None else None
        if entry is not None:
            return replace(self.found(node, entry), status="restored", reason=FROM_REMOTE)
        lacking = _lacking(node)
        return Result(node.stage, "deferred", key, document, reason=lacking) if lacking else None

    def identify(self, node: Node) -> tuple[dict[str, Any] | None, str | None]:
        """The key document and the action key; None while an upstream output is not known."""
        inputs: dict[str, dict[str, str]] = {}
        for stage, patterns in node.reads.items():
            result = self.result(node, stage)
            if self._is_left_out(node, stage):
                continue
            if result is None or not result.is_good:
                return None, None
            inputs[stage] = {name: file.sha256 for name, file in select(result.files, patterns).items()}
        files = {name: self.store.stats.digest(path) for name, path in node.files.items()}
        files |= {f"model/{name}": self.store.stats.digest(path) for name, path in self._local_files(node).items()}
        document = self._documents.document(node, inputs, files)
        return document, digest_of(document)

    def build(self, node: Node, bounds: Gates, tick: Tick) -> Result:
        """Bring the stage up to date; the result is recorded whatever it is. Raises nothing but KeyboardInterrupt."""
        try:
            result = None if node.stage in self.afresh else self.examine(node)
            if result is None or result.status == "restored":
                result = self._build(node, tick)
            if node.stage == "package" and result.is_good:
                result = self._publish(node, bounds, result)
        except (ModelBuildError, OSError) as error:
            result = Result(node.stage, "failed", *self._identity(node), reason=_text(error))
        self.results[node.recipe, node.stage] = result
        return result

    def _identity(self, node: Node) -> tuple[str | None, dict[str, Any]]:
        with contextlib.suppress(ModelBuildError, OSError):
            document, key = self.identify(node)
            return key, document or {}
        return None, {}

    def _blocked(self, node: Node) -> Result | None:
        for stage in node.reads:
            result = self.result(node, stage)
            if self._is_left_out(node, stage):
                continue
            if result is not None and result.status == "deferred":
                # Only a stage that is itself what cannot run here has a key: the first of a chain is named.
                reason = result.reason if result.key is None else f"{stage} is deferred: {result.reason}"
                return Result(node.stage, "deferred", reason=reason)
            if result is not None and result.status in ("failed", "skipped"):
                return Result(node.stage, "skipped", reason=f"{stage} {result.status}")
        return None

    def _is_left_out(self, node: Node, stage: str) -> bool:
        """Whether the node does without an upstream stage that cannot run here."""
        result = self.result(node, stage)
        return stage in node.optional and result is not None and result.status == "deferred"

    def _build(self, node: Node, tick: Tick) -> Result:
        document, key = self.identify(node)
        if document is None or key is None:
            raise StageError("an input is missing; build the stages before it first")

        def waiting(seconds: float) -> None:
            tick(seconds, "waiting for another build of the same")

        with self.store.key_lock(key, waiting):
            entry = self.store.lookup(key)
            if entry is not None and node.stage not in self.afresh:
                return self.found(node, entry, "built by another build meanwhile")
            return self._fetch(node, key, tick) or self._work(node, key, document, tick)

    def _fetch(self, node: Node, key: str, tick: Tick) -> Result | None:
        """The stage's output from the remote cache; what it takes may not run beside a measurement."""
        if self.remote is None or node.stage in self.afresh or self.remote.peek(key) is None:
            return None
        with machine.working(lambda seconds: tick(seconds, "waiting for a measurement on this machine")):
            entry = self.remote.fetch(key)
        return replace(self.found(node, entry), status="restored", reason=FROM_REMOTE) if entry is not None else None

    def _work(self, node: Node, key: str, document: dict[str, Any], tick: Tick) -> Result:
        lacking = _lacking(node)
        if lacking:
            return Result(node.stage, "deferred", key, document, reason=lacking)
        with self.store.scratch() as folder:
            inputs = self.lay_out(node, folder / "inputs")
            out = folder / "out"
            out.mkdir()
            job = make_job(node.module, node.spec, inputs, out, self.workspace.root)
            outcome = self._run(node, job, folder, tick)
            status, reason = outcome.result["status"], outcome.result.get("reason", "")
            measurements = outcome.result.get("measurements", {})
            if status == "deferred":
                return Result(node.stage, status, key, document, reason=reason)
            if status == "failed":
                where = "" if measurements else f" (log: {self.log(node).relative_to(self.workspace.root)})"
                return Result(node.stage, "failed", key, document, {}, measurements, outcome.seconds, reason + where)
            if self.identify(node)[1] != key:
                raise StageError("an input changed while it was read; build again")
            entry = self.store.commit(key, node.stage, document, out, measurements, outcome.seconds)
        self.committed.append(entry)
        return replace(self.found(node, entry), status="built", reason=self._why(node, document))

    def _why(self, node: Node, document: dict[str, Any]) -> str:
        if node.stage in self.afresh:
            return "asked for afresh"
        reasons = self.history.reasons(node.recipe, node.stage, document)
        shown = "; ".join(str(reason) for reason in reasons[:3])
        return shown + (f"; and {len(reasons) - 3} more" if len(reasons) > 3 else "") or "its output was not in the store"

    def _run(self, node: Node, job: dict[str, Any], folder: Path, tick: Tick) -> Outcome:
        def waiting(seconds: float) -> None:
            tick(seconds, "waiting for a measurement on this machine" if not alone else "waiting to measure alone")

        alone = node.stage in MEASURING or job["spec"].get("on_miss") == "tune"
        with machine.measuring(waiting) if alone else machine.working(waiting):
            return run_worker(job, folder, self.log(node), tick)

    def log(self, node: Node) -> Path:
        """Where the worker's output goes."""
        return self.workspace.state / "logs" / node.recipe / f"{node.stage}.log"

    def lay_out(self, node: Node, folder: Path) -> dict[str, Path]:
        """Views of the inputs, as folders of links: a stage sees the files that its key names, and no others."""
        inputs: dict[str, Path] = {}
        for stage, patterns in node.reads.items():
            if self._is_left_out(node, stage):
                continue
            view = inputs[stage] = folder / stage
            view.mkdir(parents=True)
            result = self.results[node.recipe, stage]
            for name, file in select(result.files, patterns).items():
                if not file.path.exists():
                    raise StageError(f"{stage}'s {name} is not in the store, only its digest is known; unpack the bundle again")
                link = view / name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file.path)
            if stage == "fetch":
                (view / "model").mkdir(exist_ok=True)
        return inputs | dict(node.files)

    def found(self, node: Node, entry: Entry, reason: str = "") -> Result:
        """The result that a stored entry, or one from elsewhere, gives the stage."""
        self.store.touch(entry.key)
        files = {name: File(self.store.blob_path(blob.sha256), blob.sha256) for name, blob in entry.outputs.items()}
        files |= self._local_as_model(node)
        return Result(node.stage, "hit", entry.key, entry.document, files, entry.measurements, entry.seconds, reason)

    def _needs_no_worker(self, node: Node) -> bool:
        return not node.spec.get("path") and not node.spec.get("packages")

    def _local_result(self, node: Node, key: str, document: dict[str, Any]) -> Result:
        return Result(node.stage, "hit", key, document, self._local_as_model(node), reason=READ_IN_PLACE)

    def _local_files(self, node: Node) -> dict[str, Path]:
        if node.local is None:
            return {}
        found = files_below(node.local, f"model {node.local.name!r}")
        for name, path in found.items():
            if not self.workspace.holds(path.resolve()):
                raise UserError(f"model {name!r}: a link leads out of the workspace; allow its folder with MODELBUILD_ROOTS")
        return found

    def _local_as_model(self, node: Node) -> dict[str, File]:
        stats = self.store.stats
        return {f"model/{name}": File(path.resolve(), stats.digest(path)) for name, path in self._local_files(node).items()}

    def lacks(self, node: Node) -> str:
        """What this machine lacks to run the stage; empty when it can."""
        return _lacking(node)

    def is_partial(self, node: Node) -> bool:
        """Whether the node does without an upstream stage that cannot run here."""
        return any(self._is_left_out(node, stage) for stage in node.reads)

    def gate_failures(self, node: Node, bounds: Gates, package: Result | None = None) -> list[str]:
        """The gates of a recipe that its measurements miss, and where its package is not the locked one."""
        measured = {}
        for stage in ("verify", "profile"):
            result = self.results.get((node.recipe, stage))
            measured[stage] = result.measurements if result is not None and result.is_good else None
        return [*gates.failures(bounds, measured), *map(str, self.artifact_drift(node, package))]

    def artifact_drift(self, node: Node, package: Result | None = None) -> list[Change]:
        """Where the package differs from the lock file; a package with deferred parts is compared in what it has."""
        result, locked = package or self.result(node, "package"), self.locked.get(node.recipe)
        if not locked or result is None or not result.files:
            return []
        built = {name: file.sha256 for name, file in result.files.items()}
        is_whole = publish.MANIFEST in locked and not self.is_partial(node)
        names = {*locked, *built} if is_whole else {*locked} & {*built} - {publish.MANIFEST}
        return changes({f"artifact.{name}": locked[name] for name in sorted(names) if name in locked},
                       {f"artifact.{name}": built[name] for name in sorted(names) if name in built})  # fmt: skip

    def artifact_is_whole(self, node: Node, bounds: Gates) -> bool:
        """Whether artifacts/<recipe>/ holds exactly the package's files and the gates hold."""
        files = self.results[node.recipe, node.stage].files
        folder = self.workspace.artifacts / node.recipe
        return publish.is_published(folder, files, self.store.stats) and not self.gate_failures(node, bounds)

    def _publish(self, node: Node, bounds: Gates, result: Result) -> Result:
        missed = self.gate_failures(node, bounds, result)
        if missed:
            return replace(result, status="failed", reason="; ".join(missed))
        folder = self.workspace.artifacts / node.recipe
        if publish.is_published(folder, result.files, self.store.stats):
            return result
        missed, notes = self._regressions(node, bounds, result)
        if missed:
            return replace(result, status="failed", reason="; ".join(missed))
        with locked(self.workspace.state / "locks" / f"{node.recipe}.lock"):
            if publish.is_published(folder, result.files, self.store.stats):  # by another command meanwhile
                return result
            entry = self.store.lookup(str(result.key))
            if entry is None:
                raise StageError("the package was removed from the store meanwhile; build again")
            publish.publish(self.store, entry, folder)
        if result.status == "hit":
            result = replace(result, status="restored", reason="copied from the store")
        return replace(result, reason="; ".join(filter(None, (result.reason, *notes))))

    def _regressions(self, node: Node, bounds: Gates, result: Result) -> tuple[list[str], list[str]]:
        """What gates with max_regress say of a package that is about to be published."""
        profile = self.results.get((node.recipe, "profile"))
        if not any(gate.get("max_regress") for gate in bounds) or profile is None or profile.status == "deferred":
            return [], []
        from pydoit.regression.guard import regressions

        return regressions(self.workspace, self.store, node.recipe, result.files, bounds)


def _from_bundle(entry: Entry, document: Mapping[str, Any]) -> str:
    """Why an entry under another key is a hit: how the machine that made it differs."""
    from pydoit.bundle.adopted import made_by

    made = "; ".join(str(change) for change in made_by(entry.document, document))
    return f"{FROM_BUNDLE}: {made}" if made else FROM_BUNDLE


def _lacking(node: Node) -> str:
    """What this machine lacks to run the stage; empty when it can."""
    if node.stage not in ("verify", "profile"):
        return ""
    from pydoit import target

    given = node.spec["target"] if "target" in node.spec else node.spec["model"]["target"]
    wanted = target.ResolvedTarget.model_validate(given)
    if target.runs_here(wanted):
        return ""
    return f"needs a {'GPU' if wanted.kind == 'cuda' else 'CPU'} that runs {wanted.arch} code"


def _text(error: Exception) -> str:
    if isinstance(error, ModelBuildError):
        return str(error)
    detail = getattr(error, "strerror", None) or str(error)
    return f"{getattr(error, 'filename', '') or 'file'}: {detail}; correct it and build again"
