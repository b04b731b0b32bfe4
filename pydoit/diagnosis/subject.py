"""A recipe under diagnosis: brings its profile and the machine's ceilings up to date, and builds variants to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from pydoit import tools
from pydoit.diagnosis.diagnose import Diagnosis, diagnose
from pydoit.diagnosis.facts import Facts
from pydoit.errors import UserError
from pydoit.experiments.bootstrap import Ratio, paired_ratio
from pydoit.experiments.lab import RUNNABLE, Built, Lab, usable
from pydoit.profiling import ceilings

PROFILED = (*RUNNABLE, "profile")
ROUNDS = 40
ALTERNATIONS = 8
"""Processes of each, where two variants cannot be timed in one."""


@dataclass
class Subject:
    """One recipe on this machine."""

    lab: Lab
    fresh: bool = False
    """Measure the profile and the ceilings again."""
    _calibrated: set[tuple[str, int]] = field(default_factory=set)

    def build(self, label: str, sets: Sequence[str] = (), stages: Sequence[str] = PROFILED) -> Built:
        """The recipe with further assignments; raises ModelBuildError where a stage fails or is deferred."""
        return usable(self.lab.build(label, sets=sets, stages=stages))

    def diagnose(self, sets: Sequence[str] = ()) -> tuple[Facts, Diagnosis]:
        """Measure, if that is not done yet, and look; raises ModelBuildError where the recipe cannot be measured here."""
        facts = self.facts(self.build(self.lab.recipe, sets))
        return facts, diagnose(facts)

    def facts(self, built: Built) -> Facts:
        """What is known of a variant whose profile is there."""
        session = built.session
        profile = built.measured("profile")
        if not profile.get("kernels"):
            raise UserError(f"{built.label}: its profile tells no kernels; doit diagnose cannot say more than doit report")
        target = dict(session.loaded[built.recipe].target)
        kind, threads = str(target.get("kind")), int(profile["threads"])
        known = ceilings.read(session.store.root, kind, threads)
        if known is None or (self.fresh and (kind, threads) not in self._calibrated):
            known = ceilings.calibrate(self.lab.workspace, session.store, kind, threads, self.lab.console)
            self._calibrated.add((kind, threads))
        onednn = tools.version(tools.ONEDNN) != tools.ABSENT
        return Facts(profile, known, built.measured("optimize"), built.measured("compile"), target, onednn)

    def compare(self, base: Built, other: Built) -> Ratio:
        """The other's time over the base's: in one process where both run on as many threads, else process by process."""
        specs = [built.session.node(built.recipe, "profile").spec["target"] for built in (base, other)]
        if specs[0]["threads"] == specs[1]["threads"]:
            first, second = self.lab.compare([base, other], ROUNDS)["times"]
            return paired_ratio(first, second)
        pairs = [
            [median(self.lab.compare([built], ROUNDS // 2)["times"][0]) for built in (base, other)] for _ in range(ALTERNATIONS)
        ]
        return paired_ratio([first for first, _ in pairs], [second for _, second in pairs])
