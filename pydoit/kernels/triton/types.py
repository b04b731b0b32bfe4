"""Triton's names of element types."""

from __future__ import annotations

_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "i8", "int32": "i32", "int64": "i64", "uint8": "u8"}


def pointer(dtype: str) -> str:
    """`bfloat16` -> `*bf16`."""
    return f"*{_NAMES[dtype]}"
