"""Copies a step's inputs to memory of its own, so that everything after it can be one CUDA graph."""

from __future__ import annotations

import triton
import triton.language as tl

from pydoit.kernels.triton.launch import Launch, TritonFunction

BLOCK = 1024


@triton.jit
def copy_inputs(
    tokens, positions, places, tables, tokens_out, positions_out, places_out, tables_out, rows, cells, BLOCK: tl.constexpr
):
    """int32 arrays of `rows` elements, and one of `cells`."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = index < rows
    tl.store(tokens_out + index, tl.load(tokens + index, mask=row), mask=row)
    tl.store(positions_out + index, tl.load(positions + index, mask=row), mask=row)
    tl.store(places_out + index, tl.load(places + index, mask=row), mask=row)
    cell = index < cells
    tl.store(tables_out + index, tl.load(tables + index, mask=cell), mask=cell)


def make(symbol: str) -> TritonFunction:
    """(tokens, positions, places, tables, and the same again as outputs)."""
    names = ("tokens", "positions", "places", "tables")
    outputs = tuple(f"{name}_out" for name in names)
    cells = "static_cast<int32_t>(tables.shape()[0] * tables.shape()[1])"
    types = {**dict.fromkeys((*names, *outputs), "*i32"), "rows": "i32", "cells": "i32"}
    arguments = (*names, *outputs, "static_cast<int32_t>(tokens.shape()[0])", cells)
    grid = (f"(tables.shape()[0] * tables.shape()[1] + tokens.shape()[0] + {BLOCK - 1}) / {BLOCK}", "1", "1")
    return TritonFunction(symbol, (*names, *outputs), (Launch(copy_inputs, types, {"BLOCK": BLOCK}, arguments, grid),))
