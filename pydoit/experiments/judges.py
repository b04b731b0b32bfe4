"""What counts as bad in a bisection: a measured value, a command's exit status, a slower library."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydoit.experiments.bootstrap import paired_ratio
from pydoit.experiments.lab import RUNNABLE, Built, Lab

ROUNDS = 30
_PLACES = (
    ("MODELBUILD_LIBRARY", "compile", "lib.so"),
    ("MODELBUILD_WEIGHTS", "weights", "model.safetensors"),
    ("MODELBUILD_SPEC", "optimize", "spec.json"),
    ("MODELBUILD_RECORDS", "tune", "records.json"),
)


class Judge(Protocol):
    """Says whether a state is bad."""

    stages: tuple[str, ...]
    """Stages that have to be run for it."""

    def __call__(self, built: Built) -> str:
        """Why it is bad; empty when it is good."""


@dataclass
class MetricJudge:
    """A measured value beyond a bound."""

    metric: str
    largest: float | None = None
    least: float | None = None

    @property
    def stages(self) -> tuple[str, ...]:
        return (*RUNNABLE, self.metric.partition(".")[0])

    def __call__(self, built: Built) -> str:
        stage, _, path = self.metric.partition(".")
        value: Any = built.measured(stage)
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            return built.failure or f"{self.metric} was not measured"
        number = float(value)
        if self.largest is not None and not number <= self.largest:
            return f"{self.metric} is {number:.4g}, above {self.largest:g}"
        if self.least is not None and not number >= self.least:
            return f"{self.metric} is {number:.4g}, below {self.least:g}"
        return ""


@dataclass
class FiniteJudge(MetricJudge):
    """NaN or infinity in an output of the compiled model where the reference has none."""

    metric: str = "verify.not_finite"
    largest: float | None = 0.0


@dataclass
class CommandJudge:
    """A command of the user's: exit status 0 is good."""

    command: str
    root: Path
    stages: tuple[str, ...] = RUNNABLE

    def __call__(self, built: Built) -> str:
        if built.failure:
            return built.failure
        places = (
            ("LIBRARY", "compile", "lib.so"),
            ("WEIGHTS", "weights", "model.safetensors"),
            ("SPEC", "optimize", "spec.json"),
        )
        files = {f"MODELBUILD_{name}": str(built.results[stage].files[file].path) for name, stage, file in places}
        done = subprocess.run(self.command, shell=True, cwd=self.root, env={**os.environ, **files}, check=False)  # noqa: S602
        return f"`{self.command}` ended with status {done.returncode}" if done.returncode else ""


@dataclass
class SlowerJudge:
    """Slower than a good build by more than a fraction, surely; both are timed in turn in one process."""

    lab: Lab
    good: Built
    margin: float
    stages: tuple[str, ...] = RUNNABLE

    def __call__(self, built: Built) -> str:
        if built.failure:
            return built.failure
        base, other = self.lab.compare([self.good, built], ROUNDS)["times"]
        ratio = paired_ratio(base, other)
        return f"latency {ratio.text} of the good one" if ratio.low > 1 + self.margin else ""
