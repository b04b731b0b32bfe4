"""How much slower or faster, and how sure that is: bootstrap intervals over interleaved rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

RESAMPLES = 2000
LEVEL = 0.95
Verdict = Literal["faster", "slower", "same", "inconclusive"]


@dataclass(frozen=True)
class Ratio:
    """A variant's time over the base's: median over the rounds, and its 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """As a change in percent."""
        low, high = (100 * (value - 1) for value in (self.low, self.high))
        return f"{100 * (self.ratio - 1):+.1f} % [{low:+.1f}, {high:+.1f}]"

    def verdict(self, margin: float = 0.0) -> Verdict:
        """Whether the interval lies beyond `margin` (a fraction) on one side, within it, or on both sides of it."""
        if self.high < 1 - margin:
            return "faster"
        if self.low > 1 + margin:
            return "slower"
        return "same" if self.low >= 1 - margin and self.high <= 1 + margin and margin > 0 else "inconclusive"


def paired_ratio(base: Sequence[float], other: Sequence[float], seed: int = 0) -> Ratio:
    """The median of other / base over rounds, which noise that hits both cancels out of, with its bootstrap interval."""
    import numpy as np

    ratios = np.asarray(other, np.float64) / np.asarray(base, np.float64)
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = ratios[generator.integers(0, len(ratios), (RESAMPLES, len(ratios)))]
    medians = np.sort(np.median(drawn, axis=1))
    tail = (1 - LEVEL) / 2
    low, high = medians[int(tail * RESAMPLES)], medians[min(RESAMPLES - 1, int((1 - tail) * RESAMPLES))]
    return Ratio(float(np.median(ratios)), float(low), float(high))
