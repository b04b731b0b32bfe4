"""Compiles kernels for this machine and runs them on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pydoit.kernels.lowering import compile_module
from pydoit.target import ResolvedTarget, make_tvm_target, runs_here
from pydoit.tvm_compat import IRModule, tvm

ARCHS = ("x86-64", "x86-64-v3", "x86-64-v4", "sapphirerapids")


def cpu(arch: str) -> ResolvedTarget:
    """The target `arch`; skips the test on a machine that cannot run it."""
    target = ResolvedTarget(kind="cpu", arch=arch)
    if not runs_here(target):
        pytest.skip(f"this CPU does not run {arch}")
    return target


def compile_kernel(function: Any, target: ResolvedTarget) -> Any:
    """The compiled function."""
    return compile_module(IRModule({"kernel": function.with_attr("global_symbol", "kernel")}), make_tvm_target(target))[
        "kernel"
    ]


def call(kernel: Any, *arguments: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Run on copies of the arguments and return them as they are afterwards."""
    tensors = [tvm.runtime.tensor(argument) for argument in arguments]
    kernel(*tensors)
    return [tensor.numpy() for tensor in tensors]
