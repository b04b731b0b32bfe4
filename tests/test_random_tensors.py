"""Seeded tensors: fixed bits, ranges, and a picture-like spectrum."""

from __future__ import annotations

import hashlib

import numpy as np

from pydoit.importers.spec import Input
from pydoit.random_tensors import integers, picture_like, random_sample, uniform


def test_the_bits_are_those_of_every_other_machine() -> None:
    values = uniform(0, "encoder.weight", (3, 5), -0.25, 0.25)
    digest = hashlib.sha256(values.tobytes()).hexdigest()
    assert digest == "983c3fe503bbe9e50a0eab0dbd7dfc562925de2dfffff5331105361037e071e2"


def test_values_depend_on_seed_and_name() -> None:
    one = uniform(0, "a", (64,), 0, 1)
    assert not np.array_equal(one, uniform(1, "a", (64,), 0, 1))
    assert not np.array_equal(one, uniform(0, "b", (64,), 0, 1))
    assert np.array_equal(one, uniform(0, "a", (64,), 0, 1))


def test_uniform_has_the_moments_of_its_range() -> None:
    values = uniform(3, "x", (100_000,), -2, 4).astype(np.float64)
    assert values.min() >= -2
    assert values.max() < 4
    # standard error of the mean is 6 / sqrt(12 * 100,000) = 0.0055; five of them
    assert abs(values.mean() - 1) < 0.028


def test_integers_reach_both_ends() -> None:
    assert set(integers(0, "ids", (1000,), 2, 5)) == {2, 3, 4, 5}


def test_samples_keep_shape_type_and_range() -> None:
    inputs = {
        "ids": Input(shape=(1, 50), dtype="int64", range=(7, 7)),
        "mask": Input(shape=(4,), dtype="bool"),
        "x": Input(shape=(2, 3), dtype="float16"),
    }
    sample = random_sample(inputs, 0, 0)
    assert {name: (array.shape, str(array.dtype)) for name, array in sample.items()} == {
        "ids": ((1, 50), "int64"),
        "mask": ((4,), "bool"),
        "x": ((2, 3), "float16"),
    }
    assert (sample["ids"] == 7).all()
    assert not np.array_equal(sample["x"], random_sample(inputs, 0, 1)["x"])


def test_picture_like_noise_is_smooth_and_bounded() -> None:
    item = Input(shape=(1, 3, 37, 64), dtype="float32", range=(-2, 2))
    picture = picture_like({"image": item}, 0, 0)["image"]
    white = random_sample({"image": item}, 0, 0)["image"]
    assert picture.shape == item.shape
    assert np.abs(picture).max() <= 2

    def neighbours(image: np.ndarray) -> float:
        return float(np.corrcoef(image[..., :-1].ravel(), image[..., 1:].ravel())[0, 1])

    assert abs(neighbours(white)) < 0.1
    assert neighbours(picture) > 0.5
