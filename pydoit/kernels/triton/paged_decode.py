"""Decode attention over a paged KV cache: the context split over blocks, partial results combined (Flash-Decoding)."""

from __future__ import annotations

import triton
import triton.language as tl

from pydoit.kernels.triton.launch import Launch, TritonFunction
from pydoit.kernels.triton.types import pointer

MIN_GROUP = 16
"""Rows of a tensor core's tile; query heads of a group are padded to it."""
LOG2E = 1.4426950408889634


@triton.jit
def partial_attention(
    q, places, tables, cache, sums, maxima,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, PAGE: tl.constexpr,
    TABLE: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr, WINDOW: tl.constexpr,
    SCALE: tl.constexpr,
):  # fmt: skip
    """One split of one sequence and key head: weighted sums f32 [rows, HEADS, SPLITS, WIDTH], maxima and totals."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    split = tl.program_id(2)
    shared: tl.constexpr = HEADS // KV_HEADS
    place = tl.load(places + row)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(place - WINDOW + 1, 0)
    blocks = tl.cdiv(place + 1 - first, BLOCK)
    each = tl.cdiv(blocks, SPLITS)
    lane = tl.arange(0, LANES)
    member = tl.arange(0, GROUP)
    wide = lane < WIDTH
    own = (member < shared)[:, None] & wide[None, :]
    query = tl.load(q + (row * HEADS + head * shared + member)[:, None] * WIDTH + lane[None, :], mask=own, other=0.0)
    highest = tl.full([GROUP], float("-inf"), tl.float32)
    total = tl.zeros([GROUP], tl.float32)
    gathered = tl.zeros([GROUP, LANES], tl.float32)
    for block in range(split * each, tl.minimum(split * each + each, blocks)):
        token = first + block * BLOCK + tl.arange(0, BLOCK)
        valid = token <= place
        page = tl.load(tables + row * TABLE + token // PAGE, mask=valid, other=0).to(tl.int64)
        at = ((page * 2 * KV_HEADS + head) * PAGE + token % PAGE) * WIDTH
        seen = valid[:, None] & wide[None, :]
        key = tl.load(cache + at[:, None] + lane[None, :], mask=seen, other=0.0)
        value = tl.load(cache + KV_HEADS * PAGE * WIDTH + at[:, None] + lane[None, :], mask=seen, other=0.0)
        score = tl.dot(query, tl.trans(key).to(query.dtype)) * SCALE
        score = tl.where(valid[None, :], score, float("-inf"))
        rising = tl.maximum(highest, tl.max(score, 1))
        weight = tl.exp2(score - rising[:, None])
        shrink = tl.exp2(highest - rising)
        total = total * shrink + tl.sum(weight, 1)
        gathered = gathered * shrink[:, None] + tl.dot(weight.to(query.dtype), value.to(query.dtype))
        highest = rising
    target = (row * HEADS + head * shared + member) * SPLITS + split
    tl.store(sums + target[:, None] * WIDTH + lane[None, :], gathered, mask=own)
    tl.store(maxima + target * 2, highest, mask=member < shared)
    tl.store(maxima + target * 2 + 1, total, mask=member < shared)


@triton.jit
def combine(
    sums, maxima, out,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Weights of the splits by their maxima; out [rows, HEADS, WIDTH]."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    split = tl.arange(0, SPLITS)
    lane = tl.arange(0, LANES)
    base = (row * HEADS + head) * SPLITS
    highest = tl.load(maxima + (base + split) * 2)
    total = tl.load(maxima + (base + split) * 2 + 1)
    weight = tl.exp2(highest - tl.max(highest, 0))
    wide = lane < WIDTH
    part = tl.load(sums + (base + split)[:, None] * WIDTH + lane[None, :], mask=wide[None, :], other=0.0)
    result = tl.sum(part * weight[:, None], 0) / tl.sum(total * weight, 0)
    tl.store(out + (row * HEADS + head) * WIDTH + lane, result.to(out.dtype.element_ty), mask=wide)


def make(
    symbol: str, *, heads: int, kv_heads: int, width: int, page_size: int, table: int, dtype: str, cache_dtype: str,
    window: int | None, splits: int,
) -> TritonFunction:  # fmt: skip
    """(q, places, tables, cache, out, sums, maxima): row r attends by table row r; the last two are scratch."""
    group = max(MIN_GROUP, triton.next_power_of_2(heads // kv_heads))
    lanes = max(16, triton.next_power_of_2(width))
    shape = {"HEADS": heads, "WIDTH": width, "LANES": lanes, "SPLITS": splits}
    constants = {**shape, "KV_HEADS": kv_heads, "PAGE": page_size, "TABLE": table, "GROUP": group, "BLOCK": 64,
                 "WINDOW": window or 0, "SCALE": width**-0.5 * LOG2E}  # fmt: skip
    first = Launch(
        partial_attention,
        {"q": pointer(dtype), "places": "*i32", "tables": "*i32", "cache": pointer(cache_dtype), "sums": "*fp32",
         "maxima": "*fp32"},
        constants,
        ("q", "places", "tables", "cache", "sums", "maxima"),
        ("q.shape()[0]", str(kv_heads), str(splits)),
    )  # fmt: skip
    second = Launch(
        combine,
        {"sums": "*fp32", "maxima": "*fp32", "out": pointer(dtype)},
        shape,
        ("sums", "maxima", "out"),
        ("q.shape()[0]", str(heads), "1"),
    )
    return TritonFunction(symbol, ("q", "places", "tables", "cache", "out", "sums", "maxima"), (first, second))
