"""Runs an artifact folder from Python: needs TVM's runtime library, tvm_ffi and numpy, nothing else of ours."""

from __future__ import annotations

from pydoit.runtime.model import Model, TensorSpec, load

__all__ = ["Model", "TensorSpec", "load"]
