"""Attention over scattered pages equals softmax attention in float64: prompts, batches, windows, shared heads, dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pydoit.errors import UserError
from pydoit.kernels.cpu.paged_attention import paged_attention
from pydoit.tvm_compat import tirx
from tests.kernels.cpu.running import call, compile_kernel, cpu

DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def expected(q: Any, keys: Any, values: Any, places: list[int], window: int | None, scale: float) -> Any:
    """q [rows, heads, dim]; keys, values [rows][tokens, kv_heads, dim] in float64."""
    rows, heads, _ = q.shape
    out = np.zeros(q.shape)
    for row in range(rows):
        first = 0 if window is None else max(0, places[row] - window + 1)
        for head in range(heads):
            shared = head // (heads // keys[row].shape[1])
            k, v = (part[row][first : places[row] + 1, shared] for part in (keys, values))
            scores = (k @ q[row, head]) * scale
            weights = np.exp(scores - scores.max())
            out[row, head] = weights @ v / weights.sum()
    return out


@pytest.mark.parametrize("arch", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "page_size", "dtype", "window"),
    [
        (6, 2, 64, 16, "float32", None),
        (4, 4, 8, 4, "float32", 5),
        (3, 1, 80, 16, "float32", 1),
        (2, 1, 128, 16, "bfloat16", None),
        (4, 2, 20, 6, "float16", 9),
        (2, 2, 6, 1, "float32", None),
    ],
)
@pytest.mark.parametrize("table", ["shared", "row", "one"])
def test_attention(
    arch: str, heads: int, kv_heads: int, head_dim: int, page_size: int, dtype: str, window: int | None, table: str
) -> None:
    target = cpu(arch)
    generator = np.random.default_rng(3)
    first = 2 * page_size + 1
    places = {"shared": list(range(first, first + 11)), "row": [0, 3 * page_size, page_size - 1, 17], "one": [first]}[table]
    rows, pages = len(places), 96
    cache = generator.normal(size=(pages, 2, kv_heads, page_size, head_dim)).astype(DTYPES[dtype])
    sequences = rows if table == "row" else 1
    in_sequence = -(-(max(places) + 1) // page_size) + 1
    tables = np.zeros((sequences, pages), np.int32)
    tables[:, :in_sequence] = generator.permutation(pages)[: sequences * in_sequence].reshape(sequences, in_sequence)
    q = generator.normal(size=(rows, heads * head_dim)).astype(np.float32) * 3
    wide = cache.astype(np.float64)
    lined = [np.concatenate([wide[page] for page in line[:in_sequence]], axis=2).transpose(0, 2, 1, 3) for line in tables]
    given = [lined[row if table == "row" else 0] for row in range(rows)]
    wanted = expected(
        q.astype(np.float64).reshape(rows, heads, head_dim),
        [item[0] for item in given], [item[1] for item in given], places, window, head_dim**-0.5,
    )  # fmt: skip
    function = paged_attention(
        1 if table == "one" else tirx.Var("rows", "int64"), heads, kv_heads, head_dim, page_size, pages, dtype, target,
        table="row" if table == "row" else "shared", window=window, scale=head_dim**-0.5,
    )  # fmt: skip
    out = np.full((rows, heads * head_dim), np.nan, np.float32)
    found = call(compile_kernel(function, target), q, np.array(places, np.int32), tables, cache, out)[-1]
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=2e-5, atol=2e-6)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="evenly"):
        paged_attention(1, 5, 2, 64, 16, 4, "float32", cpu("x86-64"), table="row", window=None, scale=1.0)
    with pytest.raises(UserError, match="int8"):
        paged_attention(1, 4, 2, 64, 16, 4, "int8", cpu("x86-64"), table="row", window=None, scale=1.0)
