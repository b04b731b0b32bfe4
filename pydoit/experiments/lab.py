"""Builds variants of a recipe and measures them beside each other; what was built before comes from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydoit.apart import run_apart
from pydoit.console import Console
from pydoit.errors import ModelBuildError
from pydoit.experiments.order_text import assign_order
from pydoit.history import write_atomically
from pydoit.keys import pretty
from pydoit.nodes import select
from pydoit.passes.info import Entry
from pydoit.passes.order import Setting
from pydoit.results import Result
from pydoit.session import Options, Session
from pydoit.stages import ORDER
from pydoit.workspace import Workspace

RUNNABLE = ("fetch", "import", "optimize", "tune", "compile", "tokenizer", "quantize", "weights")
"""Stages that a library and its weights take."""


@dataclass(frozen=True)
class Built:
    """A variant whose stages were brought up to date, as far as they could be."""

    label: str
    session: Session
    recipe: str
    seconds: float
    """What its optimize, tune and compile stages took when they ran."""

    @property
    def results(self) -> Mapping[str, Result]:
        """Results by stage."""
        return self.session.results(self.recipe)

    @property
    def failure(self) -> str:
        """Why a stage is not good; empty when all are."""
        bad = [result for result in self.results.values() if not result.is_good]
        return f"{bad[0].stage} {bad[0].status}: {bad[0].reason}" if bad else ""

    def measured(self, stage: str) -> Mapping[str, Any]:
        """A stage's measurements; none when it did not run."""
        result = self.results.get(stage)
        return result.measurements if result is not None else {}

    @property
    def ir(self) -> str:
        """Digest of the optimized module: variants that have it in common are the same library."""
        result = self.results.get("optimize")
        return result.files["module.json"].sha256 if result is not None and result.is_good else ""

    @property
    def library_bytes(self) -> int:
        """Size of lib.so."""
        return int(self.measured("compile").get("library_bytes", 0))


@dataclass
class Lab:
    """A workspace in which one recipe is varied."""

    workspace: Workspace
    recipe: str
    sets: tuple[str, ...] = ()
    console: Console = field(default_factory=Console)
    builds: int = 0
    """Variants that were brought up to date so far."""

    def open(self, sets: Sequence[str] = (), afresh: frozenset[str] = frozenset()) -> Session:
        """A session of the recipe with further assignments; raises the recipe's error."""
        session = Session(self.workspace, Options((*self.sets, *sets), ORDER, afresh))
        session.open([self.recipe])
        for error in session.broken.values():
            raise error
        return session

    def order(self) -> tuple[Entry, ...]:
        """The recipe's order of passes, a preset written out."""
        return tuple(self.open().node(self.recipe, "optimize").spec["passes"])

    def setting(self) -> Setting:
        """What the recipe's order is for."""
        node = self.open().node(self.recipe, "optimize")
        return Setting(node.spec["target"]["kind"], node.module.startswith("language_"))

    def build(
        self, label: str, order: Sequence[Entry] | None = None, sets: Sequence[str] = (), stages: Sequence[str] = RUNNABLE
    ) -> Built:
        """Bring a variant's stages up to date; one that fails is told by the result, later ones are skipped."""
        chosen = [assign_order(order)] if order is not None else []
        session = self.open([*chosen, *sets])
        needed = session.stages(self.recipe, stages)
        self.builds += 1
        for stage in needed:
            self.console.started(label, stage)
            result = session.build(self.recipe, stage, partial(self._tick, label, stage))
            if not result.is_good:
                break
        results = session.results(self.recipe)
        ran = (results[stage].seconds for stage in ("optimize", "tune", "compile") if stage in results)
        return Built(label, session, self.recipe, sum(ran))

    def compare(self, variants: Sequence[Built], rounds: int, seed: int = 0) -> dict[str, Any]:
        """Times of the variants, interleaved in one process, and the differences of their outputs to the first's."""
        first = variants[0].session
        profile = first.node(self.recipe, "profile").spec
        spec = {
            "inputs": profile["inputs"],
            "dims": profile["dims"],
            "seed": profile["seed"] + seed,
            "rounds": rounds,
            "target": profile["target"],
        }
        inputs = {
            f"{number}.{stage}": {name: file.path for name, file in select(variant.results[stage].files, (pattern,)).items()}
            for number, variant in enumerate(variants)
            for stage, pattern in (("optimize", "spec.json"), ("compile", "lib*.so*"), ("weights", "model.safetensors"))
        }
        return self.work("compare", spec, inputs, alone=True)

    def work(
        self, stage: str, spec: Mapping[str, Any], inputs: Mapping[str, Mapping[str, Path]], *, alone: bool = False
    ) -> dict[str, Any]:
        """Run a worker that is no part of the graph; its measurements.

        `inputs`: name of a folder that the worker sees -> names and places of its files. Raises StageError when it fails.
        """
        store, log = self.open().store, f"{self.recipe}/{stage}.log"
        return run_apart(
            self.workspace, store, stage, spec, inputs, label=self.recipe, log=log, console=self.console, alone=alone
        )

    def save(self, name: str, document: Mapping[str, Any]) -> str:
        """Keep an experiment's figures; the file's name in the workspace."""
        path = self.workspace.state / "experiments" / self.recipe / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, pretty(document))
        return path.relative_to(self.workspace.root).as_posix()

    def _tick(self, label: str, stage: str, seconds: float, text: str) -> None:
        self.console.running(label, stage, seconds, text)


def usable(built: Built) -> Built:
    """The variant itself; raises ModelBuildError when it failed."""
    if built.failure:
        raise ModelBuildError(f"{built.label}: {built.failure}")
    return built
