"""Where the keys and values of a token lie in a paged cache, and what the kernels accept as one."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, Literal

from pydoit.errors import UserError
from pydoit.kernels.cpu.emit import argument, constant, convert, load, reinterpret
from pydoit.tvm_compat import tirx

Table = Literal["row", "shared"]
CACHE_DTYPES = ("float32", "float16", "bfloat16")


def check_cache(heads: int, kv_heads: int, head_dim: int, cache_dtype: str) -> None:
    """Raise UserError where the attention is none that the kernels compute."""
    if heads % kv_heads:
        raise UserError(f"{heads} query heads cannot share {kv_heads} key heads evenly; use a divisor of {heads}")
    if head_dim % 2:
        raise UserError(f"head_dim {head_dim} is odd, but rotary embedding pairs its values; use an even one")
    if cache_dtype not in CACHE_DTYPES:
        raise UserError(f'cache dtype "{cache_dtype}" is not supported; known: {", ".join(CACHE_DTYPES)}')


def declare_tables(rows: Any, table: Table) -> Any:
    """Declare the argument `tables`, int32 [rows or 1, max_pages], max_pages being symbolic: a page number for each page."""
    return argument("tables", (rows if table == "row" else 1, tirx.Var("max_pages", "int32")), "int32")


def declare_cache(pages: Any, kv_heads: int, page_size: int, head_dim: int, cache_dtype: str) -> Any:
    """Declare the argument `cache`, [pages, 2 (key, value), kv_heads, page_size, head_dim]."""
    return argument("cache", (pages, 2, kv_heads, page_size, head_dim), cache_dtype)


def common_lanes(lanes: int, *extents: int) -> int:
    """Return the most lanes that divide all extents."""
    return gcd(lanes, *extents)


def load_cached(cache: Any, index: Sequence[Any], lanes: int) -> Any:
    """Read `lanes` adjacent elements of the cache in float32."""
    stored = load(cache, index, lanes)
    if cache.dtype == "float32":
        return stored
    if cache.dtype == "float16":
        return convert(stored, "float32", lanes)
    # By its bits: TVM's own conversion of a bound bfloat16 vector reads the number of the bits.
    wide = convert(reinterpret(stored, "uint16", lanes), "uint32", lanes)
    return reinterpret(wide << constant(16, lanes, "uint32"), "float32", lanes)
