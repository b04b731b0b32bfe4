"""The planted models as recipes, and what the diagnosis must say of each."""

from __future__ import annotations

from dataclasses import dataclass

from pydoit.experiments.order_text import inline
from pydoit.passes.info import Entry
from pydoit.passes.presets import PRESETS


@dataclass(frozen=True)
class Planted:
    """A model with something planted."""

    shape: tuple[int, ...]
    bottleneck: str
    """Class of the first finding; empty where there must be none."""
    kind: str = ""
    kernel: str = ""
    """Part of the name of its kernel or pass."""
    factory: str = ""
    order: tuple[Entry, ...] = PRESETS["O2"]
    values: str = ""
    """More of the input."""


def _behind(*more: Entry) -> tuple[Entry, ...]:
    return (*more, *PRESETS["O2"])


_HERE = "recipes.planted"
PLANTED = {
    "convolution": Planted((1, 128, 56, 56), "compute", "unvectorized", "conv2d", order=PRESETS["O0"]),
    "grouped": Planted((1, 192, 56, 56), "compute", "unvectorized", "conv2d"),
    "rows": Planted((4, 4_000_000), "compute", "underused", "softmax", factory="lopsided"),
    "weights": Planted((1, 4096), "memory", "saturated", "matmul"),
    "passes": Planted((1, 16_777_216), "memory", "intermediates", "", order=PRESETS["O0"]),
    "strided": Planted((4096, 4096), "memory", "locality", "transpose"),
    "scattered": Planted((1 << 23,), "memory", "locality", "", values='dtype = "int64"\nrange = [0, 33554431]'),
    "crumbs": Planted((1, 64), "scheduling", "launches", "", order=PRESETS["O0"]),
    "chain": Planted((1, 2_000_000), "scheduling", "serial", "cumsum"),
    "lopsided": Planted((3, 4_000_000), "scheduling", "imbalance", "softmax"),
    "slow-pass": Planted((1, 4, 32, 32), "compile", "slow pass", "Dawdle", "plain", _behind(f"{_HERE}:Dawdle")),
    "unsettled": Planted(
        (1, 4, 32, 32), "compile", "unsettled", "Waver", "plain", _behind({"name": f"{_HERE}:Waver", "repeat": 4})
    ),
    "round-trip": Planted(
        (1, 4, 32, 32), "compile", "round trip", "BackAgain", "plain", _behind(f"{_HERE}:There", f"{_HERE}:BackAgain")
    ),
    "good": Planted((1, 128, 56, 56), "", factory="convolution"),
}


def recipe(name: str, case: Planted) -> str:
    """Its text."""
    return f"""\
schema = 1

[model]
source = "torch"
factory = "{_HERE}:{case.factory or name}"

[model.inputs.x]
shape = {list(case.shape)}
{case.values}

[target]
threads = 2

[passes]
order = {inline(list(case.order))}

[verify]
samples = 2

[verify.tolerance]
max_abs = 1.0
cosine = 0.99
"""
