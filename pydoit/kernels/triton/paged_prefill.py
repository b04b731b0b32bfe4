"""Causal attention of a prompt's chunk over a paged KV cache, in tiles of queries (FlashAttention-2)."""

from __future__ import annotations

import triton
import triton.language as tl

from pydoit.kernels.triton.launch import Launch, TritonFunction
from pydoit.kernels.triton.paged_decode import LOG2E
from pydoit.kernels.triton.types import pointer


@triton.jit
def prefill_attention(
    q, places, tables, cache, out, rows,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, PAGE: tl.constexpr,
    QUERIES: tl.constexpr, BLOCK: tl.constexpr, WINDOW: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """q [rows, HEADS, WIDTH] of one sequence at consecutive places; the chunk's own keys are in the cache already."""
    tile = tl.program_id(0)
    head = tl.program_id(1)
    kv_head = head // (HEADS // KV_HEADS)
    row = tile * QUERIES + tl.arange(0, QUERIES)
    lane = tl.arange(0, LANES)
    wide = lane < WIDTH
    held = (row < rows)[:, None] & wide[None, :]
    at = (row.to(tl.int64) * HEADS + head) * WIDTH
    query = tl.load(q + at[:, None] + lane[None, :], mask=held, other=0.0)
    start = tl.load(places)
    place = start + row
    last = start + tl.minimum(tile * QUERIES + QUERIES, rows) - 1
    begin = 0
    if WINDOW > 0:
        begin = tl.maximum(start + tile * QUERIES - WINDOW + 1, 0) // BLOCK * BLOCK
    highest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    gathered = tl.zeros([QUERIES, LANES], tl.float32)
    for first in range(begin, last + 1, BLOCK):
        token = first + tl.arange(0, BLOCK)
        valid = token <= last
        page = tl.load(tables + token // PAGE, mask=valid, other=0).to(tl.int64)
        slot = ((page * 2 * KV_HEADS + kv_head) * PAGE + token % PAGE) * WIDTH
        seen = valid[:, None] & wide[None, :]
        key = tl.load(cache + slot[:, None] + lane[None, :], mask=seen, other=0.0)
        score = tl.dot(query, tl.trans(key).to(query.dtype)) * SCALE
        allowed = token[None, :] <= place[:, None]
        if WINDOW > 0:
            allowed = allowed & (token[None, :] > place[:, None] - WINDOW)
        score = tl.where(allowed, score, float("-inf"))
        rising = tl.maximum(highest, tl.max(score, 1))
        # A row that has seen nothing yet stays at minus infinity, and its weights at zero.
        base = tl.where(rising == float("-inf"), 0.0, rising)
        weight = tl.exp2(score - base[:, None])
        shrink = tl.exp2(highest - base)
        total = total * shrink + tl.sum(weight, 1)
        value = tl.load(cache + KV_HEADS * PAGE * WIDTH + slot[:, None] + lane[None, :], mask=seen, other=0.0)
        gathered = gathered * shrink[:, None] + tl.dot(weight.to(query.dtype), value.to(query.dtype))
        highest = rising
    # Rows beyond the prompt may see nothing; they are not stored.
    result = gathered / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out + at[:, None] + lane[None, :], result.to(out.dtype.element_ty), mask=held)


def make(
    symbol: str, *, heads: int, kv_heads: int, width: int, page_size: int, dtype: str, cache_dtype: str, window: int | None
) -> TritonFunction:
    """(q, places, tables, cache, out): all rows belong to the only row of `tables`."""
    names = ("q", "places", "tables", "cache", "out")
    types = {"q": pointer(dtype), "places": "*i32", "tables": "*i32", "cache": pointer(cache_dtype), "out": pointer(dtype)}
    queries = 64
    constants = {"HEADS": heads, "KV_HEADS": kv_heads, "WIDTH": width, "LANES": max(16, triton.next_power_of_2(width)),
                 "PAGE": page_size, "QUERIES": queries, "BLOCK": 64, "WINDOW": window or 0,
                 "SCALE": width**-0.5 * LOG2E}  # fmt: skip
    launch = Launch(
        prefill_attention,
        {**types, "rows": "i32"},
        constants,
        (*names, "static_cast<int32_t>(q.shape()[0])"),
        (f"(q.shape()[0] + {queries - 1}) / {queries}", str(heads), "1"),
        warps=4,
        stages=2,
    )
    return TritonFunction(symbol, names, (launch,))
