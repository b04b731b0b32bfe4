"""Weights: a valid safetensors file whose tensors lie aligned."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pydoit import weight_file
from pydoit.runtime import aligned

TENSORS = {
    "b.scalar": np.float32(3.5).reshape(()),
    "z.odd": np.arange(7, dtype=np.float32),
    "a.matrix": np.arange(64, dtype=np.float32).reshape(4, 16),
    "c.ids": np.arange(8, dtype=np.int64),
    "d.half": np.arange(5, dtype=np.float16),
    "e.empty": np.zeros((0, 3), dtype=np.float32),
}


def test_the_file_is_valid_and_holds_every_tensor(tmp_path: Path) -> None:
    weight_file.write(tmp_path / "w.safetensors", TENSORS)
    loaded = load_file(tmp_path / "w.safetensors")
    assert set(loaded) == set(TENSORS)
    for name, array in TENSORS.items():
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array)


def test_the_order_of_the_tensors_does_not_change_the_bytes(tmp_path: Path) -> None:
    weight_file.write(tmp_path / "one", TENSORS)
    weight_file.write(tmp_path / "two", dict(reversed(TENSORS.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_mapped_tensors_are_aligned_and_equal(tmp_path: Path) -> None:
    weight_file.write(tmp_path / "w.safetensors", TENSORS)
    mapped = aligned.map_weights(tmp_path / "w.safetensors")
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(mapped[name], array)
        assert mapped[name].ctypes.data % aligned.ALIGNMENT == 0 or array.size == 0
    assert isinstance(owner(mapped["a.matrix"]), mmap.mmap), "a tensor of a multiple of 64 bytes is not copied"


def owner(array: np.ndarray) -> object:
    """What holds an array's memory."""
    base: object = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


@pytest.mark.parametrize("size", [4, 40, -1])
def test_a_cut_off_file_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "w.safetensors"
    weight_file.write(path, TENSORS)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError):
        aligned.map_weights(path)


def test_arrays_are_copied_only_where_they_lie_badly() -> None:
    good = aligned.empty((4, 4), np.dtype("float32"))
    assert aligned.aligned(good) is good
    shifted = aligned.empty((17,), np.dtype("float32"))[1:]
    assert aligned.aligned(shifted).ctypes.data % aligned.ALIGNMENT == 0
    assert aligned.aligned(good.T).flags.c_contiguous
