"""Triton kernels: numbers in the interpreter, machine code for several architectures, launches that fit the hardware."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pydoit.kernels.triton import matmul, paged_decode, paged_prefill, rope_append, stage_inputs
from pydoit.kernels.triton.build import compile_launch
from pydoit.kernels.triton.launch import TritonFunction
from pydoit.kernels.triton.tile import default_tiles

SHARED = {"sm_80": 163, "sm_89": 99, "sm_90": 227, "sm_100": 227}
"""KiB of shared memory that a block may have (CUDA programming guide, table of compute capabilities)."""
HEADS = {"heads": 8, "kv_heads": 2, "width": 128, "page_size": 16, "dtype": "bfloat16", "cache_dtype": "bfloat16"}


def test_numbers_in_the_interpreter() -> None:
    """A process of its own: the switch changes what @triton.jit makes when a kernel's module is imported."""
    file = Path(__file__).with_name("interpreted_kernels.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def tiles(arch: str, n: int, *, gated: bool) -> list[dict[str, Any]]:
    return [asdict(tile) for tile in default_tiles(arch, n, gated=gated)]


def functions(arch: str) -> list[TritonFunction]:
    products = [
        matmul.make("m", n=512, k=256, tiles=tiles(arch, 512, gated=gated), dtype="bfloat16", out_dtype=out, bias=bias,
                    residual=residual, gated=gated)
        for out, bias, residual, gated in (
            ("bfloat16", True, True, False), ("bfloat16", False, False, True), ("float32", False, False, False),
        )
    ]  # fmt: skip
    return [
        *products,
        paged_decode.make("d", **HEADS, table=64, window=None, splits=16),
        paged_prefill.make("p", **HEADS, window=100),
        rope_append.make("r", **HEADS, table=64, shared=True),
        stage_inputs.make("s"),
    ]


@pytest.mark.parametrize("arch", sorted(SHARED))
def test_machine_code(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for function in functions(arch):
        for launch in function.launches:
            compiled: Any = compile_launch(launch, arch)
            assert compiled.asm["cubin"][:4] == b"\x7fELF"
            assert compiled.metadata.shared <= SHARED[arch] * 1024, (function.symbol, launch.constants)
            assert compiled.metadata.num_warps == launch.warps


@pytest.mark.parametrize("gated", [False, True])
def test_every_number_of_rows_has_one_tile(gated: bool) -> None:
    from tests.kernels.gpu.launching import evaluate

    function = matmul.make("m", n=64, k=64, tiles=tiles("sm_90", 64, gated=gated), dtype="bfloat16",
                           out_dtype="bfloat16", bias=False, residual=False, gated=gated)  # fmt: skip
    for rows in range(1, 200):
        x = type("Tensor", (), {"shape": (rows, 64)})
        assert sum(bool(evaluate(launch.when, {"x": x})) for launch in function.launches) == 1
