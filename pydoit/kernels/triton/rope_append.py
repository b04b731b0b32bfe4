"""Rotary positions and the write into the paged KV cache, one head of one token a program."""

from __future__ import annotations

import triton
import triton.language as tl

from pydoit.kernels.triton.launch import Launch, TritonFunction
from pydoit.kernels.triton.types import pointer


@triton.jit
def rope_append(
    qkv, rotation, places, tables, cache, out,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, WIDTH: tl.constexpr, HALF: tl.constexpr, PAGE: tl.constexpr,
    TABLE: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """qkv [rows, HEADS + 2 KV_HEADS, WIDTH], rotation f32 [rows, WIDTH] (cosines, sines) -> out and the cache."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    lane = tl.arange(0, HALF)
    inside = lane < WIDTH // 2
    base = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * WIDTH
    first = tl.load(base + lane, mask=inside).to(tl.float32)
    second = tl.load(base + WIDTH // 2 + lane, mask=inside).to(tl.float32)
    if head < HEADS + KV_HEADS:
        cosine = tl.load(rotation + row * WIDTH + lane, mask=inside)
        sine = tl.load(rotation + row * WIDTH + WIDTH // 2 + lane, mask=inside)
        turned = first * cosine - second * sine
        second = second * cosine + first * sine
        first = turned
    kind = out.dtype.element_ty
    if head < HEADS:
        target = out + (row * HEADS + head) * WIDTH
        tl.store(target + lane, first.to(kind), mask=inside)
        tl.store(target + WIDTH // 2 + lane, second.to(kind), mask=inside)
    else:
        place = tl.load(places + row)
        table = tables if SHARED else tables + row * TABLE
        page = tl.load(table + place // PAGE).to(tl.int64)
        slot = ((page * 2 * KV_HEADS + head - HEADS) * PAGE + place % PAGE) * WIDTH
        stored = cache.dtype.element_ty
        tl.store(cache + slot + lane, first.to(stored), mask=inside)
        tl.store(cache + slot + WIDTH // 2 + lane, second.to(stored), mask=inside)


def make(
    symbol: str,
    *,
    heads: int,
    kv_heads: int,
    width: int,
    page_size: int,
    table: int,
    shared: bool,
    dtype: str,
    cache_dtype: str,
) -> TritonFunction:
    """(qkv, rotation, places, tables, cache, q): writes q and, in place, the cache."""
    names = ("qkv", "rotation", "places", "tables", "cache", "out")
    kinds = (pointer(dtype), "*fp32", "*i32", "*i32", pointer(cache_dtype), pointer(dtype))
    constants = {"HEADS": heads, "KV_HEADS": kv_heads, "WIDTH": width, "HALF": triton.next_power_of_2(width // 2),
                 "PAGE": page_size, "TABLE": table, "SHARED": shared}  # fmt: skip
    grid = ("qkv.shape()[0]", str(heads + 2 * kv_heads), "1")
    launch = Launch(rope_append, dict(zip(names, kinds, strict=True)), constants, names, grid, warps=1)
    return TritonFunction(symbol, names, (launch,))
