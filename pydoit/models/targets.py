"""The operators of a recipe's target."""

from __future__ import annotations

from pydoit.models.config import DecoderConfig
from pydoit.models.operators import Decisions, Operators
from pydoit.models.spec import LanguageSpec


def make_operators(config: DecoderConfig, spec: LanguageSpec, decisions: Decisions | None = None) -> Operators:
    """What the decoder is built from on the target of `spec`; `decisions` of tuning records choose kernels."""
    if spec.target.kind == "cuda":
        from pydoit.models.cuda_operators import CudaOperators

        return CudaOperators(config, spec, decisions)
    from pydoit.models.cpu_operators import CpuOperators

    return CpuOperators(config, spec)
