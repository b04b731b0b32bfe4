"""Triton kernels beside float64 arithmetic, in Triton's interpreter; `test_triton.py` runs this file with it switched on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch

from pydoit.kernels.triton import matmul, paged_decode, paged_prefill, rope_append, stage_inputs
from pydoit.kernels.triton.tile import default_tiles
from tests.kernels.gpu.launching import run


@pytest.mark.parametrize("rows", [1, 2, 16, 17, 40, 70])
@pytest.mark.parametrize(("bias", "residual", "gated"), [(0, 0, 0), (1, 1, 0), (0, 0, 1)])
@pytest.mark.parametrize("k", [64, 100])
def test_matmul(rows: int, bias: int, residual: int, gated: int, k: int) -> None:
    n = 72
    torch.manual_seed(rows)
    x, weight = torch.randn(rows, k), torch.randn((2 if gated else 1) * n, k) / k**0.5
    added, before = torch.randn(n), torch.randn(rows, n)
    function = matmul.make("m", n=n, k=k, tiles=[asdict(tile) for tile in default_tiles("sm_80", n, gated=bool(gated))],
                           dtype="float32", out_dtype="float32", bias=bool(bias), residual=bool(residual), gated=bool(gated))  # fmt: skip
    given = [x, weight, *([added] if bias else []), *([before] if residual else []), torch.full((rows, n), torch.nan)]
    found = run(function, *given)[-1]
    wanted = x.double() @ weight.double().T
    if gated:
        wanted = torch.nn.functional.silu(wanted[:, :n]) * wanted[:, n:]
    wanted = wanted + (added.double() if bias else 0) + (before.double() if residual else 0)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def softmax_attention(q: Any, keys: Any, values: Any, place: int, window: int | None) -> Any:
    """One token's [heads, width] over keys and values [tokens, kv_heads, width]."""
    first = 0 if window is None else max(0, place - window + 1)
    shared = q.shape[0] // keys.shape[1]
    heads = []
    for head in range(q.shape[0]):
        k, v = keys[first : place + 1, head // shared], values[first : place + 1, head // shared]
        weights = torch.softmax((k @ q[head]) * q.shape[1] ** -0.5, 0)
        heads.append(weights @ v)
    return torch.stack(heads)


def made_cache(pages: int, kv_heads: int, page_size: int, width: int) -> Any:
    return torch.randn(pages, 2, kv_heads, page_size, width)


def lined(cache: Any, table: Any, kind: int) -> Any:
    """[tokens, kv_heads, width] of a page table's sequence."""
    return torch.cat([cache[page, kind].transpose(0, 1) for page in table]).double()


@pytest.mark.parametrize(
    ("heads", "kv_heads", "width", "page_size", "window"), [(4, 2, 32, 16, None), (3, 1, 20, 4, 7), (2, 2, 64, 8, 1)]
)
def test_decode_and_prefill_attention(heads: int, kv_heads: int, width: int, page_size: int, window: int | None) -> None:
    torch.manual_seed(1)
    common = {"heads": heads, "kv_heads": kv_heads, "width": width, "page_size": page_size, "dtype": "float32",
              "cache_dtype": "float32", "window": window}  # fmt: skip
    pages, table = 80, 40
    cache = made_cache(pages, kv_heads, page_size, width)
    tables = torch.stack([torch.randperm(pages)[:table] for _ in range(3)]).int()
    places = torch.tensor([0, page_size * 3 + 1, 140], dtype=torch.int32)
    q = torch.randn(3, heads * width)
    splits = 4
    out, sums, maxima = torch.empty(3, heads * width), torch.empty(3, heads, splits, width), torch.empty(3, heads, splits, 2)
    function = paged_decode.make("d", **common, table=table, splits=splits)
    run(function, q, places, tables, cache, out, sums, maxima)
    for row in range(3):
        keys, values = (lined(cache, tables[row].tolist(), kind) for kind in (0, 1))
        wanted = softmax_attention(q[row].reshape(heads, width).double(), keys, values, int(places[row]), window)
        torch.testing.assert_close(out[row].reshape(heads, width).double(), wanted, rtol=1e-4, atol=1e-5)

    rows, start = 70, 31
    q = torch.randn(rows, heads * width)
    out = torch.full((rows, heads * width), torch.nan)
    places = torch.arange(start, start + rows, dtype=torch.int32)
    run(paged_prefill.make("p", **common), q, places, tables[:1], cache, out)
    keys, values = (lined(cache, tables[0].tolist(), kind) for kind in (0, 1))
    wanted = torch.stack(
        [softmax_attention(q[row].reshape(heads, width).double(), keys, values, start + row, window) for row in range(rows)]
    )
    torch.testing.assert_close(out.reshape(rows, heads, width).double(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(4, 2, 32), (3, 1, 20)])
def test_rope_append(heads: int, kv_heads: int, width: int, shared: bool) -> None:
    torch.manual_seed(2)
    rows, pages, page_size, table = 9, 20, 4, 10
    cache = made_cache(pages, kv_heads, page_size, width)
    before = cache.clone()
    qkv = torch.randn(rows, (heads + 2 * kv_heads) * width)
    angles = torch.rand(rows, width // 2) * 6
    rotation = torch.cat([angles.cos(), angles.sin()], 1)
    tables = (
        torch.randperm(pages)[:table].int()[None]
        if shared
        else torch.stack([torch.randperm(pages)[:table] for _ in range(rows)]).int()
    )
    places = torch.arange(5, 5 + rows, dtype=torch.int32)
    if not shared:  # every row a page of its own, as sequences have them
        tables[:, :] = torch.arange(rows)[:, None]
    q = torch.empty(rows, heads * width)
    function = rope_append.make("r", heads=heads, kv_heads=kv_heads, width=width, page_size=page_size, table=table,
                                shared=shared, dtype="float32", cache_dtype="float32")  # fmt: skip
    run(function, qkv, rotation, places, tables, cache, q)
    split = qkv.reshape(rows, heads + 2 * kv_heads, width)
    half = width // 2
    first, second = split[..., :half], split[..., half:]
    cosine, sine = angles.cos()[:, None], angles.sin()[:, None]
    rotated = torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)
    torch.testing.assert_close(q.reshape(rows, heads, width), rotated[:, :heads])
    for row in range(rows):
        place = int(places[row])
        page = int(tables[0 if shared else row, place // page_size])
        before[page, 0, :, place % page_size] = rotated[row, heads : heads + kv_heads]
        before[page, 1, :, place % page_size] = split[row, heads + kv_heads :]
    torch.testing.assert_close(cache, before)


def test_inputs_are_copied() -> None:
    function = stage_inputs.make("s")
    given = [torch.randint(0, 99, shape, dtype=torch.int32) for shape in ((300,), (300,), (300,), (3, 700))]
    copies = [torch.zeros_like(item) for item in given]
    run(function, *given, *copies)
    for item, copy in zip(given, copies, strict=True):
        assert torch.equal(item, copy)
