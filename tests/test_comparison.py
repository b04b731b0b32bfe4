"""Metrics of verify: worst cases are found, and nothing hides in NaN."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pydoit.comparison import Comparison
from pydoit.errors import GateError


def compare(*pairs: tuple[list[float], list[float]]) -> dict[str, object]:
    comparison = Comparison()
    for actual, expected in pairs:
        comparison.add({"y": np.array(actual, np.float32)}, {"y": np.array(expected, np.float32)})
    summary = comparison.summary()
    json.dumps(summary, allow_nan=False)
    return summary


def test_equal_outputs() -> None:
    summary = compare(([1, 2], [1, 2]), ([3, 4], [3, 4]))
    assert (summary["max_abs"], summary["cosine"], summary["distinct_outputs"]) == (0.0, 1.0, 2)


def test_the_worst_sample_and_value_are_named() -> None:
    summary = compare(([1, 2], [1, 2]), ([3, 4.5], [3, 4]), ([5, 6.25], [5, 6]))
    assert summary["max_abs"] == 0.5
    assert summary["worst_sample"] == 1
    assert summary["max_rel"] == 0.125
    assert summary["mean_abs"] == pytest.approx(0.75 / 6)


def test_cosine_of_opposite_and_of_zero_outputs() -> None:
    assert compare(([-1, 0], [1, 0]))["cosine"] == pytest.approx(-1)
    assert compare(([0, 0], [1, 0]))["cosine"] == 0.0
    assert compare(([0, 0], [0, 0]))["cosine"] == 1.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_counted(bad: float) -> None:
    summary = compare(([1, bad], [1, 2]))
    assert summary["not_finite"] == 1
    assert summary["max_abs"] == "inf"
    assert compare(([1, bad], [1, bad]))["not_finite"] == 0


def test_repeated_reference_outputs_are_not_distinct() -> None:
    assert compare(([1], [1]), ([1], [1]), ([1], [1 + 1e-7]))["distinct_outputs"] == 1
    assert compare(([1], [1]), ([2], [2]), ([1], [1]))["distinct_outputs"] == 2


def test_another_shape_or_kind_is_no_match() -> None:
    comparison = Comparison()
    for wrong in (np.zeros((1, 3), np.float32), np.zeros(3, np.int64)):
        with pytest.raises(GateError, match="the reference's float32"):
            comparison.add({"x": wrong}, {"x": np.zeros(3, np.float32)})
