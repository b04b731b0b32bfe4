"""Who computes a convolution or product on a CPU: by the recipe, by measured records, by default TVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from pydoit.kernels.onednn.site import Site

Provider = Literal["auto", "onednn", "tvm"]

_RECORDED: ContextVar[Mapping[str, Mapping[str, Any]]] = ContextVar("recorded", default={})  # noqa: B039 - never changed


@contextmanager
def recorded(decisions: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Within it, `auto` follows these tuning records: key -> {"provider": ...}."""
    token = _RECORDED.set(decisions)
    try:
        yield
    finally:
        _RECORDED.reset(token)


def takes(site: Site, wanted: Provider) -> bool:
    """Whether oneDNN computes a site.

    `auto` without a record means TVM, but for bfloat16, which TVM has no kernels for on CPUs.
    """
    if wanted != "auto":
        return wanted == "onednn"
    provider = _RECORDED.get().get(site.key, {}).get("provider")
    return provider == "onednn" if provider else site.dtype == "bfloat16"
