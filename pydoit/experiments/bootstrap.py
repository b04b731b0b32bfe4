"""How much slower or faster, and how sure that is: bootstrap intervals over interleaved rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
        return percent(self.ratio, self.low, self.high)

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
    low, high = ends(resampled_medians(ratios, generator), LEVEL)
    return Ratio(float(np.median(ratios)), low, high)


def percent(ratio: float, low: float, high: float) -> str:
    """A ratio and its interval as changes in percent."""
    change, least, most = (100 * (value - 1) for value in (ratio, low, high))
    return f"{change:+.1f} % [{least:+.1f}, {most:+.1f}]"


def resampled_medians(values: Any, generator: Any) -> Any:
    """Medians of RESAMPLES draws of as many values, with replacement."""
    import numpy as np

    return np.median(values[generator.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)


def ends(drawn: Any, level: float) -> tuple[float, float]:
    """The interval that holds `level` of what was drawn."""
    import numpy as np

    ordered, tail = np.sort(drawn), (1 - level) / 2
    last = len(ordered) - 1
    return float(ordered[int(tail * len(ordered))]), float(ordered[min(last, int((1 - tail) * len(ordered)))])
