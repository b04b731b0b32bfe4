"""What oneDNN computes at one place of a module: the operator, its extents and what is done with the result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydoit.keys import digest_of

ATTRIBUTE = "pydoit.onednn"
"""Attribute of an IRModule: JSON of {symbol: fields of a `Site`} for the functions that it calls."""


@dataclass(frozen=True)
class PostOp:
    """An operation on the result while it is in registers."""

    name: str
    """`add` of the next tensor, or an elementwise function of `emit.ALGORITHMS`."""
    alpha: float = 0.0
    """First parameter: the lower bound of `clip`, the factor of `linear`, the slope of `relu` below zero."""
    beta: float = 0.0
    """Second parameter: the upper bound of `clip`, the summand of `linear`."""
    dtype: str = ""
    """Element type of the tensor that is added."""


@dataclass(frozen=True)
class Site:
    """A convolution (NHWC, weights OHWI) or a matrix product with what follows it; equal ones share a function."""

    operator: str
    """`conv2d` or `matmul`."""
    dtype: str
    """Element type of data and weights; sums are in float32."""
    out_dtype: str
    """Element type of the result; no part of the record's key."""
    data: tuple[int | str, ...]
    """Extents of the data, symbolic ones as text."""
    weights: tuple[int | str, ...]
    """Extents of the right operand."""
    has_bias: bool = False
    """Whether a float32 vector is added to the channels or columns."""
    post_ops: tuple[PostOp, ...] = ()
    """What follows, in order."""
    strides: tuple[int, int] = (1, 1)
    """Of rows and columns; convolutions."""
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Zeros at the top, left, bottom and right; convolutions."""
    dilation: tuple[int, int] = (1, 1)
    """Distance of the kernel's rows and columns; convolutions."""
    groups: int = 1
    """Groups of channels; convolutions."""

    @property
    def key(self) -> str:
        """Key of its tuning record."""
        plain = _plain(self)
        del plain["out_dtype"]
        post_ops = [{name: value for name, value in item.items() if name != "dtype"} for item in plain["post_ops"]]
        return digest_of({"provider": "onednn", **plain, "post_ops": post_ops})

    @property
    def task(self) -> str:
        """Readable name."""
        extents = "x".join(map(str, self.data)), "x".join(map(str, self.weights))
        parts = [self.operator, *extents, *(["bias"] if self.has_bias else []), *(item.name for item in self.post_ops)]
        return " ".join((*parts, self.dtype))

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Site:
        """From its fields as JSON has them."""
        values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
        values["post_ops"] = tuple(PostOp(**item) for item in entry["post_ops"])
        return cls(**values)


@dataclass
class Registry:
    """The functions that a module calls."""

    sites: dict[str, Site] = field(default_factory=dict)

    @classmethod
    def of(cls, module: Any) -> Registry:
        """What earlier passes have registered."""
        return cls(dict(sites_of(module)))

    def symbol(self, site: Site) -> str:
        """The symbol of a site's function; equal ones share it."""
        for symbol, known in self.sites.items():
            if known == site:
                return symbol
        number = sum(known.operator == site.operator for known in self.sites.values())
        symbol = f"onednn_{site.operator}_{number}"
        self.sites[symbol] = site
        return symbol

    def attach(self, module: Any) -> Any:
        """The module with what `sites_of` reads; as it is when there is nothing."""
        if not self.sites:
            return module
        return module.with_attr(
            ATTRIBUTE, json.dumps({name: _plain(site) for name, site in self.sites.items()}, sort_keys=True)
        )


def sites_of(module: Any) -> dict[str, Site]:
    """The sites that a module calls, by symbol."""
    text = (module.attrs or {}).get(ATTRIBUTE)
    entries = json.loads(str(text)) if text is not None else {}
    return {symbol: Site.parse(entry) for symbol, entry in sorted(entries.items())}


@dataclass(frozen=True)
class Call:
    """A call of a site's function in `main`."""

    symbol: str
    weight: int | None
    """Position of its weights among the weights of `main`; None where they are computed by `main`."""
    data: tuple[int, ...] | None
    """Extents of the data, symbolic ones at their largest; None where that is not known."""
    out: tuple[int, ...] | None
    """Extents of the result."""
    weights: tuple[int, ...] | None
    """Extents of the weights."""


def calls_of(module: Any, entry: str = "main") -> Iterator[Call]:
    """The calls of sites in a module's entry function, in their order."""
    from pydoit.tvm_compat import relax

    function = module[entry]
    given = list(function.params)[int(function.attrs["num_input"]) if "num_input" in function.attrs else 0 :]
    largest = {str(name): int(bound) for name, bound in (function.attrs.get("tir_var_upper_bound") or {}).items()}
    symbols = sites_of(module)
    for block in function.body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if not isinstance(value, relax.Call) or getattr(value.op, "name", "") != "relax.call_dps_packed":
                continue
            symbol = str(value.args[0].global_symbol)
            if symbol in symbols:
                data, weight, *_ = value.args[1].fields
                position = next((index for index, var in enumerate(given) if var.same_as(weight)), None)
                extents = (_extents(tensor.ty.shape, largest) for tensor in (data, value, weight))
                yield Call(symbol, position, *extents)


def _extents(shape: Any, largest: Mapping[str, int]) -> tuple[int, ...] | None:
    found = [int(size) if hasattr(size, "value") else largest.get(str(size)) for size in shape]
    return None if any(size is None for size in found) else tuple(size for size in found if size is not None)


def _plain(site: Site) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(json.dumps(asdict(site)))
    return value
