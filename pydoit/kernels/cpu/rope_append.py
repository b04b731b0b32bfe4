"""Rotary embedding of queries and keys, and the keys and values of new tokens written into the paged cache."""

from __future__ import annotations

from typing import Any

from pydoit.kernels.cpu.emit import argument, convert, load, primitive, store
from pydoit.kernels.cpu.paging import Table, check_cache, common_lanes, declare_cache, declare_tables
from pydoit.target import CPU_LANES, ResolvedTarget
from pydoit.tvm_compat import script, tirx


def rope_append(
    rows: Any,
    heads: int,
    kv_heads: int,
    head_dim: int,
    page_size: int,
    pages: Any,
    cache_dtype: str,
    target: ResolvedTarget,
    *,
    table: Table,
) -> Any:
    """Return the TIR function that rotates q and k of new tokens and appends k and v to the cache.

    Arguments of the function: qkv float32 [rows, (heads + 2 * kv_heads) * head_dim], rotation float32 [rows, head_dim]
    (cosines of head_dim / 2 angles, then their sines), positions int32 [rows], tables int32 [rows or 1, max_pages],
    cache [pages, 2, kv_heads, page_size, head_dim] of `cache_dtype` (written in place), q float32
    [rows, heads * head_dim]. The token of row r, at position p, goes to page tables[r or 0, p // page_size], place
    p % page_size; `table` "shared" means that all rows belong to one sequence. `rows` and `pages` are numbers or
    tirx.Var. The halves of a head are rotated against each other, as in transformers' Llama.

    Raises UserError where heads, head_dim or cache_dtype do not fit.
    """
    check_cache(heads, kv_heads, head_dim, cache_dtype)
    half = head_dim // 2
    lanes = common_lanes(CPU_LANES[target.arch], half)

    def emit() -> None:
        qkv = argument("qkv", (rows, (heads + 2 * kv_heads) * head_dim))
        rotation = argument("rotation", (rows, head_dim))
        positions = argument("positions", (rows,), "int32")
        tables = declare_tables(rows, table)
        cache = declare_cache(pages, kv_heads, page_size, head_dim, cache_dtype)
        q = argument("q", (rows, heads * head_dim))
        loop = script.serial(0, 1) if isinstance(rows, int) and rows == 1 else script.parallel(0, rows)
        with loop as row:
            page = script.bind(tables[row if table == "row" else 0, tirx.indexdiv(positions[row], page_size)])
            place = script.bind(tirx.indexmod(positions[row], page_size))

            def rotate(column: Any, write: Any) -> None:
                with script.serial(0, half // lanes) as step:
                    start = step * lanes
                    first, second = (script.bind(load(qkv, [row, column + start + part], lanes)) for part in (0, half))
                    cosine, sine = (script.bind(load(rotation, [row, start + part], lanes)) for part in (0, half))
                    write(start, first * cosine - second * sine)
                    write(start + half, second * cosine + first * sine)

            with script.serial(0, heads) as head:
                rotate(head * head_dim, lambda start, value: store(q, value, [row, head * head_dim + start], lanes))

            with script.serial(0, kv_heads) as head:

                def append(kind: int, start: Any, value: Any) -> None:
                    stored = value if cache_dtype == "float32" else convert(value, cache_dtype, lanes)
                    store(cache, stored, [page, kind, head, place, start], lanes)

                rotate((heads + head) * head_dim, lambda start, value: append(0, start, value))
                with script.serial(0, head_dim // lanes) as step:
                    column = (heads + kv_heads + head) * head_dim
                    append(1, step * lanes, load(qkv, [row, column + step * lanes], lanes))

    return primitive("rope_append", emit)
