"""Sampling against transformers' own filters, against counted frequencies, and at its edges."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation import logits_process

from pydoit.errors import ModelBuildError, UserError
from pydoit.runtime.text.sampling import Sampler, Sampling, _position, best


def logits_of(seed: int, vocabulary: int = 50, levels: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Random logits; few `levels` make many equal ones."""
    values = np.random.default_rng(seed).normal(scale=3, size=vocabulary)
    return (values if not levels else np.round(values * levels) / levels).astype(np.float32)


def transformers_support(logits: np.ndarray[Any, Any], history: list[int], options: Sampling) -> set[int]:
    """The tokens that transformers would draw from."""
    scores, ids = torch.from_numpy(logits)[None], torch.tensor([history])
    steps: list[Any] = []
    if options.repetition_penalty != 1:
        steps.append(logits_process.RepetitionPenaltyLogitsProcessor(options.repetition_penalty))
    steps.append(logits_process.TemperatureLogitsWarper(float(options.temperature)))
    if options.top_k:
        steps.append(logits_process.TopKLogitsWarper(options.top_k))
    if options.top_p < 1:
        steps.append(logits_process.TopPLogitsWarper(options.top_p))
    if options.min_p:
        steps.append(logits_process.MinPLogitsWarper(options.min_p))
    for step in steps:
        scores = step(ids, scores)
    return set(torch.nonzero(scores[0] > -math.inf).flatten().tolist())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 5, 50, 80]),
    top_p=st.sampled_from([0.05, 0.51, 0.93, 1.0]),
    min_p=st.sampled_from([0.0, 0.03, 0.5, 1.0]),
    penalty=st.sampled_from([1.0, 1.4]),
)
def test_draws_from_what_transformers_keeps(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float, penalty: float
) -> None:
    logits, history = logits_of(seed), [3, 7, 7, 11]
    options = Sampling(temperature, top_k, top_p, min_p, penalty, seed)
    expected = transformers_support(logits, history, options)
    sampler = Sampler(options)
    drawn = {sampler.next(logits, history).token for _ in range(200)}
    assert drawn <= expected
    if len(expected) == 1:
        assert drawn == expected


@pytest.mark.parametrize(
    "options",
    [Sampling(top_p=0.9, seed=1), Sampling(top_k=10, seed=2), Sampling(min_p=0.1, seed=3), Sampling(temperature=1.7, seed=4)],
)
def test_frequencies_follow_the_probabilities(options: Sampling) -> None:
    logits = logits_of(5, 40)
    support = sorted(transformers_support(logits, [0], options))
    weights = np.exp(logits[support].astype(np.float64) / options.temperature)
    expected = weights / weights.sum()
    draws = 20_000
    sampler = Sampler(options)
    counts = np.bincount([sampler.next(logits).token for _ in range(draws)], minlength=logits.size)
    assert counts.sum() == counts[support].sum()
    # Six standard deviations of a binomial count: one in 10^8 draws of a right sampler lies outside.
    bound = 6 * np.sqrt(expected * (1 - expected) / draws) + 1 / draws
    assert (np.abs(counts[support] / draws - expected) < bound).all()


def test_greedy_takes_the_lowest_of_equal_ids_and_follows_the_penalty() -> None:
    logits = np.array([0.5, 2.0, 2.0, -1.0], np.float32)
    greedy = Sampler(Sampling(temperature=0))
    assert greedy.next(logits).token == 1
    penalized = Sampler(Sampling(temperature=0, repetition_penalty=8.0))
    assert [penalized.next(logits, history).token for history in ([1], [1, 1, 2])] == [2, 0]
    assert logits[1] == 2


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3000), st.floats(0, 1, exclude_max=True))
def test_position_is_that_of_the_running_sum(seed: int, size: int, missed: float) -> None:
    random = np.random.default_rng(seed)
    weights = np.where(random.random(size) < 0.7, 0, random.integers(1, 5, size)).astype(np.float32)
    weights[random.integers(size)] = 1
    running = weights.astype(np.float64).cumsum()
    assert _position(weights, 1 - missed) == int(np.argmax(running >= (1 - missed) * running[-1]))


def test_same_seed_same_tokens() -> None:
    logits = logits_of(9, 1000)
    first, again, other = (Sampler(Sampling(top_p=0.99, seed=seed)) for seed in (1, 1, 2))
    tokens = [[sampler.next(logits).token for _ in range(40)] for sampler in (first, again, other)]
    assert tokens[0] == tokens[1] != tokens[2]
    unseeded = [[Sampler(Sampling()).next(logits).token for _ in range(3)] for _ in range(12)]
    assert len({tuple(item) for item in unseeded}) > 1


def test_logprobs_are_the_models_own() -> None:
    logits = logits_of(4, levels=2)
    sampled = Sampler(Sampling(temperature=0.1, top_k=3, repetition_penalty=2, seed=0, logprobs=6)).next(logits, [1, 2])
    expected = torch.log_softmax(torch.from_numpy(logits).double(), 0)
    # One float32 rounding of each of 50 exponentials, relative to their sum, and of the difference.
    assert abs(sampled.logprob - expected[sampled.token]) < 4 * np.finfo(np.float32).eps * np.abs(logits).max()
    order = sorted(range(logits.size), key=lambda index: (-logits[index], index))[:6]
    assert [item.token for item in sampled.top] == order
    assert sampled.top[0].logprob == max(item.logprob for item in sampled.top)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(1, 40))
def test_best_is_a_stable_sort(values: list[int], count: int) -> None:
    array = np.array(values, np.float32)
    expected = sorted(range(len(values)), key=lambda index: (-values[index], index))[:count]
    assert best(array, count).tolist() == expected


def test_flat_logits_of_a_large_vocabulary_need_a_large_nucleus() -> None:
    logits = np.zeros(128_256, np.float32)
    sampler = Sampler(Sampling(top_p=0.5, seed=0))
    drawn = [sampler.next(logits).token for _ in range(50)]
    assert max(drawn) < 64_129
    assert max(drawn) > 32_000


def test_a_large_vocabulary_takes_milliseconds() -> None:
    logits = logits_of(2, 128_256)
    sampler = Sampler(Sampling(0.8, 40, 0.95, 0.05, 1.1, 0, 5))
    sampler.next(logits, [1])
    times = []
    for _ in range(20):
        start = time.perf_counter()
        sampler.next(logits, [1, 2, 3])
        times.append(time.perf_counter() - start)
    assert min(times) < 0.02  # seen: about 0.003 s; a full sort of the vocabulary takes longer than this bound allows


@pytest.mark.parametrize("bad", [[math.nan, 1.0], [math.inf, 0.0], [-math.inf, -math.inf]])
def test_logits_that_are_not_finite_are_an_error(bad: list[float]) -> None:
    for temperature in (0, 1):
        with pytest.raises(ModelBuildError, match="not finite"):
            Sampler(Sampling(temperature=temperature)).next(np.array(bad, np.float32))


def test_masked_tokens_are_never_drawn() -> None:
    logits = np.full(1000, -np.inf, np.float32)
    logits[[5, 900]] = 0
    sampler = Sampler(Sampling(top_p=0.999, seed=3))
    assert {sampler.next(logits).token for _ in range(60)} == {5, 900}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", math.nan), ("temperature", math.inf), ("top_k", -1), ("top_k", 1.5),
        ("top_p", 0.0), ("top_p", 1.1), ("min_p", -0.1), ("min_p", 1.5), ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf), ("repetition_penalty", math.nan), ("seed", -1), ("seed", 2**64), ("logprobs", -1),
    ],
)  # fmt: skip
def test_values_out_of_range_name_the_option(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{name} is .*; give a"):
        dataclasses.replace(Sampling(), **{name: value})


def test_wrong_shapes_and_histories() -> None:
    with pytest.raises(UserError, match=r"shape \[1, 3\]"):
        Sampler(Sampling()).next(np.zeros((1, 3), np.float32))
    with pytest.raises(UserError, match="history holds token 3"):
        Sampler(Sampling(repetition_penalty=1.1)).next(np.zeros(3, np.float32), [3])
