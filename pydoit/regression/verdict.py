"""Is it slower? Ratios of interleaved samples from several processes, their interval, and what may be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydoit.experiments.bootstrap import RESAMPLES, ends, percent, resampled_medians

LEVEL = 0.98
"""Of the interval: a verdict is wrong once in a hundred times on each side."""
Verdict = Literal["better", "worse", "same", "inconclusive"]


@dataclass(frozen=True)
class Change:
    """The second artifact's time over the first's."""

    metric: str
    first_ms: float
    """Median of the first's samples."""
    second_ms: float
    ratio: float
    low: float
    high: float
    margin: float
    """Changes within this fraction count for nothing."""
    processes: int
    rounds: int
    """Samples of each in all."""

    @property
    def verdict(self) -> Verdict:
        """Worse or better where the whole interval lies beyond the margin, the same where it lies within."""
        if self.low > 1 + self.margin:
            return "worse"
        if self.high < 1 - self.margin:
            return "better"
        return "same" if self.low >= 1 - self.margin and self.high <= 1 + self.margin else "inconclusive"

    @property
    def text(self) -> str:
        """The change in percent with its interval."""
        return percent(self.ratio, self.low, self.high)


def judge(metric: str, times: Sequence[Sequence[Sequence[float]]], margin: float, seed: int = 0) -> Change:
    """The change from the samples of each process ([process][first, second][round]).

    The interval is a bootstrap over processes and, within each, over rounds: what differs between two loads of the same
    library (addresses, pages) is noise like any other, and more rounds of one process do not lessen it.
    """
    import numpy as np

    ratios = [np.asarray(second, np.float64) / np.asarray(first, np.float64) for first, second in times]
    generator = np.random.Generator(np.random.PCG64(seed))
    count = len(ratios)
    drawn = np.stack([resampled_medians(rounds, generator) for rounds in ratios], axis=1)
    chosen = generator.integers(0, count, (RESAMPLES, count))
    low, high = ends(np.take_along_axis(drawn, chosen, axis=1).mean(axis=1), LEVEL)
    # The spread of few processes is understated by drawing from them; the factor is that of the unbiased deviation.
    centre = float(np.mean([np.median(rounds) for rounds in ratios]))
    widening = (count / (count - 1)) ** 0.5 if count > 1 else 1.0
    firsts, seconds = (np.concatenate([np.asarray(part[side]) for part in times]) for side in (0, 1))
    return Change(
        metric,
        float(np.median(firsts)),
        float(np.median(seconds)),
        centre,
        centre - (centre - low) * widening,
        centre + (high - centre) * widening,
        margin,
        count,
        len(firsts),
    )


def is_clear(changes: Sequence[Change]) -> bool:
    """Whether more samples are not needed."""
    return all(change.verdict != "inconclusive" for change in changes)


def worst(changes: Sequence[Change]) -> Verdict:
    """The verdict on all metrics together: worse if one is, better if one is and none is worse."""
    found = {change.verdict for change in changes}
    ranks: tuple[Verdict, ...] = ("worse", "inconclusive", "better", "same")
    return next(verdict for verdict in ranks if verdict in found)
