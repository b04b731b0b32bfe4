"""The verdict on simulated machines: noise of rounds, of bursts and of processes; how often it is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pydoit.regression.bench import LEAST_PROCESSES, MOST_PROCESSES, ROUNDS
from pydoit.regression.verdict import Change, Verdict, is_clear, judge, worst


def process(random: Any, ratio: float, spread: float) -> list[list[float]]:
    """One process of a shared machine: what both feel, what each feels, and where each came to lie in memory."""
    base = 5.0 * (1 + 0.1 * random.random())
    bursts = np.where(random.random(ROUNDS) < 0.2, 1 + random.exponential(0.5, ROUNDS), 1.0)
    own = [1 + np.abs(random.normal(0, 0.03, ROUNDS)) for _ in range(2)]
    place = [1 + random.normal(0, spread) for _ in range(2)]
    return [list(base * bursts * own[side] * place[side] * (1.0, ratio)[side]) for side in range(2)]


def verdict(seed: int, ratio: float, spread: float) -> Verdict:
    """As `doit bench` finds it: process after process until it is clear."""
    random = np.random.default_rng(seed)
    runs: list[Any] = []
    change: Change | None = None
    while len(runs) < MOST_PROCESSES:
        runs.append(process(random, ratio, spread))
        change = judge("latency", runs, 0.02)
        if len(runs) >= LEAST_PROCESSES and is_clear([change]):
            break
    assert change is not None
    return change.verdict


@pytest.mark.parametrize("spread", [0.0, 0.005, 0.01])
def test_equal_artifacts_are_not_worse(spread: float) -> None:
    found = [verdict(seed, 1.0, spread) for seed in range(100)]
    assert found.count("worse") <= 2
    assert found.count("same") >= 60


@pytest.mark.parametrize("spread", [0.0, 0.005, 0.01])
def test_five_percent_slower_is_worse(spread: float) -> None:
    found = [verdict(1000 + seed, 1.05, spread) for seed in range(100)]
    assert found.count("worse") >= 90
    assert "better" not in found


def test_faster_is_better_and_little_noise_is_the_same() -> None:
    assert verdict(1, 0.8, 0.005) == "better"
    assert verdict(2, 1.0, 0.0) == "same"


def test_one_process_with_few_rounds_says_little() -> None:
    change = judge("latency", [[[5.0, 5.2, 5.1], [5.1, 5.0, 5.4]]], 0.02)
    assert change.low <= change.ratio <= change.high
    assert change.verdict == "inconclusive"


def test_the_worst_of_several() -> None:
    def of(low: float, high: float) -> Change:
        return Change("m", 1.0, 1.0, (low + high) / 2, low, high, 0.02, 4, 160)

    worse, better, same, unclear = of(1.03, 1.05), of(0.9, 0.95), of(0.99, 1.01), of(0.9, 1.1)
    assert worst([same, worse, better]) == "worse"
    assert worst([same, better]) == "better"
    assert worst([better, unclear]) == "inconclusive"
    assert worst([same, same]) == "same"
