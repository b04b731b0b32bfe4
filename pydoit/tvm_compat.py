"""The only door to TVM's moving namespaces; import it inside functions, because it imports TVM."""

from __future__ import annotations

import inspect


def seed_inspect() -> None:
    """Tell `inspect` which modules the frozen importlib frames belong to.

    TVM 0.27 calls `inspect.stack()` once for each `@T.prim_func`; for a `<frozen ...>` frame that walks all of
    sys.modules, so that `tvm.s_tir.tensor_intrin` takes 40 s to import instead of 4. Drop this when TVM reads the
    caller's frame alone.
    """
    known: dict[str, str] = inspect.modulesbyfile
    known["<frozen importlib._bootstrap>"] = "_frozen_importlib"
    known["<frozen importlib._bootstrap_external>"] = "_frozen_importlib_external"


seed_inspect()

import tvm  # noqa: E402
from tvm import ir, relax, te, tirx, topi  # noqa: E402
from tvm.ir import IRModule, load_json, save_json  # noqa: E402
from tvm.relax.expr_functor import PyExprMutator, mutator  # noqa: E402
from tvm.s_tir import Schedule, dlight, meta_schedule  # noqa: E402
from tvm.s_tir.analysis import estimate_tir_flops  # noqa: E402
from tvm.s_tir.pipeline import default_s_tir_pipeline as s_tir_pipeline  # noqa: E402
from tvm.s_tir.schedule import ScheduleError  # noqa: E402
from tvm.script.ir_builder import IRBuilder  # noqa: E402
from tvm.sym.analyzer import Analyzer  # noqa: E402
from tvm.target import Target  # noqa: E402
from tvm.tirx.compilation_pipeline import register_tir_pipeline  # noqa: E402
from tvm.tirx.script import builder as script  # noqa: E402
from tvm_ffi import structural_equal, structural_hash, structural_map, structural_walk  # noqa: E402

__all__ = [
    "Analyzer",
    "IRBuilder",
    "IRModule",
    "PyExprMutator",
    "Schedule",
    "ScheduleError",
    "Target",
    "dlight",
    "estimate_tir_flops",
    "ir",
    "load_json",
    "meta_schedule",
    "mutator",
    "register_tir_pipeline",
    "relax",
    "s_tir_pipeline",
    "save_json",
    "script",
    "structural_equal",
    "structural_hash",
    "structural_map",
    "structural_walk",
    "te",
    "tirx",
    "topi",
    "tvm",
]
