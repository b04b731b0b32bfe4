"""Arrays of every element type cross to TVM's tensors and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pydoit.runtime.aligned import aligned
from pydoit.runtime.exchange import to_array, to_tensor
from pydoit.runtime.library import tvm_ffi

TYPES = ("float32", "float16", "float64", "uint64", "int8", "bool")
EXTENSIONS = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")


@pytest.mark.parametrize("name", [*TYPES, *EXTENSIONS])
@pytest.mark.parametrize("shape", [(), (3, 5), (2, 0, 4)])
def test_round_trip(name: str, shape: tuple[int, ...]) -> None:
    dtype = np.dtype(name) if name in TYPES else np.dtype(getattr(ml_dtypes, name))
    array = aligned(np.ones(shape, np.float32).astype(dtype))
    tensor = to_tensor(array, tvm_ffi())
    assert str(tensor.dtype) == name
    back = to_array(tensor)
    assert back.dtype == dtype
    assert back.shape == shape
    np.testing.assert_array_equal(back.astype(np.float32), array.astype(np.float32))


def test_nothing_is_copied() -> None:
    array = aligned(np.ones((4, 4), ml_dtypes.bfloat16))
    back = to_array(to_tensor(array, tvm_ffi()))
    array[0, 0] = 7
    assert float(back[0, 0]) == 7
