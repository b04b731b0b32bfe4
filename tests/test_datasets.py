"""Inputs of verify from a function, a file and a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pydoit import datasets
from pydoit.errors import UserError
from pydoit.importers.spec import Input

INPUTS = {"ids": Input(shape=(1, 4), dtype="int64", range=(0, 9)), "x": Input(shape=(2,), dtype="float32")}


def good(inputs: dict[str, Any], samples: int, seed: int, model: Path) -> list[dict[str, Any]]:
    """A dataset as a workspace defines it."""
    assert inputs["ids"] == {"shape": [1, 4], "dtype": "int64"}
    return [{"x": np.full(2, index, np.float32), "ids": np.full((1, 4), seed + index, np.int64)} for index in range(samples)]


def too_few(inputs: dict[str, Any], samples: int, seed: int, model: Path) -> list[dict[str, Any]]:
    return good(inputs, samples - 1, seed, model)


def wrong_type(inputs: dict[str, Any], samples: int, seed: int, model: Path) -> list[dict[str, Any]]:
    return [{**sample, "x": sample["x"].astype(np.float64)} for sample in good(inputs, samples, seed, model)]


def wrong_name(inputs: dict[str, Any], samples: int, seed: int, model: Path) -> list[dict[str, Any]]:
    return [{**sample, "idz": sample["ids"]} for sample in good(inputs, samples, seed, model)]


def missing(inputs: dict[str, Any], samples: int, seed: int, model: Path) -> list[dict[str, Any]]:
    return [{"x": sample["x"]} for sample in good(inputs, samples, seed, model)]


def test_a_function_gives_the_samples(tmp_path: Path) -> None:
    samples = datasets.load("test_datasets:good", INPUTS, 3, 5, tmp_path)
    assert [int(sample["ids"][0, 0]) for sample in samples] == [5, 6, 7]
    assert list(samples[0]) == ["ids", "x"]


def test_a_file_gives_the_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", ids=np.arange(12).reshape(3, 1, 4), x=np.zeros((3, 2), np.float32))
    samples = datasets.load(tmp_path / "d.npz", INPUTS, 2, 0, tmp_path)
    np.testing.assert_array_equal(samples[1]["ids"], [[4, 5, 6, 7]])


def test_without_a_dataset_the_seed_gives_the_samples(tmp_path: Path) -> None:
    one, two = (datasets.load(None, INPUTS, 2, seed, tmp_path) for seed in (0, 1))
    assert not np.array_equal(one[0]["x"], two[0]["x"])
    assert not np.array_equal(one[0]["x"], one[1]["x"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("too_few", "gives 2, not 3 inputs"),
        ("wrong_type", "gives 'x' as float64 [2], not float32 [2]"),
        ("wrong_name", "gives an input 'idz'; did you mean 'ids'?"),
        ("missing", "does not give the input 'ids'"),
        ("nothing", "has no 'nothing'"),
    ],
)
def test_a_dataset_that_does_not_fit(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=r"^verify.dataset: ") as caught:
        datasets.load(f"test_datasets:{name}", INPUTS, 3, 0, tmp_path)
    assert message in str(caught.value)


def test_a_file_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    np.savez(tmp_path / "pickled.npz", ids=np.array([object()], dtype=object), x=np.zeros((3, 2)))
    np.savez(tmp_path / "short.npz", x=np.zeros((3, 2), np.float32))
    for name, message in (("gone", "does not exist"), ("bad", "no .npz"), ("pickled", "no .npz"), ("short", "lacks 'ids'")):
        with pytest.raises(UserError) as caught:
            datasets.load(tmp_path / f"{name}.npz", INPUTS, 2, 0, tmp_path)
        assert message in str(caught.value)
