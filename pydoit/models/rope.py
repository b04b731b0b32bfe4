"""Rotary positions of a config: their frequencies, how they are scaled for long texts, and the keys that say so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.frozen import Frozen
from pydoit.models.config_keys import number, table, whole
from pydoit.nearest import nearest

ROPE_TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor"), ("original_max_position_embeddings",)),
    "yarn": (("factor",), ("original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor")),
}
"""Kind -> keys that it needs, keys that it may have."""
_NAMES = {
    "factor": "factor",
    "low_freq_factor": "low_frequency_factor",
    "high_freq_factor": "high_frequency_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "attention_factor",
}
_ANY = ("rope_type", "type", "rope_theta", "partial_rotary_factor")


class Rope(Frozen):
    """Rotary position embedding: frequencies and their scaling (Su et al., 2021; scaling as transformers defines it)."""

    theta: float
    """Base of the frequencies."""
    type: Literal["default", "linear", "llama3", "yarn"] = "default"
    """How the frequencies are scaled for long contexts."""
    factor: float = 1.0
    """By how much the context is longer than what the model was trained on first."""
    low_frequency_factor: float = 1.0
    """llama3: below it a frequency is divided by `factor`."""
    high_frequency_factor: float = 4.0
    """llama3: above it a frequency stays as it is."""
    original_context: int = 8192
    """llama3, yarn: tokens of the first training."""
    beta_fast: float = 32.0
    """yarn: rotations above which a frequency stays as it is."""
    beta_slow: float = 1.0
    """yarn: rotations below which a frequency is divided by `factor`."""
    attention_factor: float | None = None
    """yarn: by what cosines and sines are multiplied; None: 0.1 ln(factor) + 1."""

    def frequencies(self, head_dim: int) -> NDArray[np.float32]:
        """Angle for each position step, float32 of [head_dim / 2]."""
        exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
        plain = (1.0 / np.power(np.float32(self.theta), exponent)).astype(np.float32)
        if self.type == "linear":
            return np.asarray(plain / np.float32(self.factor), np.float32)
        if self.type == "llama3":
            return self._llama3(plain)
        if self.type == "yarn":
            return self._yarn(plain, head_dim)
        return np.asarray(plain, np.float32)

    @property
    def magnitude(self) -> float:
        """By what cosines and sines are multiplied."""
        if self.type != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def _llama3(self, plain: NDArray[np.float32]) -> NDArray[np.float32]:
        low, high = self.low_frequency_factor, self.high_frequency_factor
        wavelength = 2 * math.pi / plain
        smooth = (self.original_context / wavelength - low) / (high - low)
        between = (1 - smooth) * plain / self.factor + smooth * plain
        scaled = np.where(wavelength > self.original_context / low, plain / self.factor, between)
        return np.where(wavelength < self.original_context / high, plain, scaled).astype(np.float32)

    def _yarn(self, plain: NDArray[np.float32], head_dim: int) -> NDArray[np.float32]:
        def dimension(rotations: float) -> float:
            return head_dim * math.log(self.original_context / (rotations * 2 * math.pi)) / (2 * math.log(self.theta))

        low = max(math.floor(dimension(self.beta_fast)), 0)
        high = min(math.ceil(dimension(self.beta_slow)), head_dim - 1)
        ramp = np.clip((np.arange(head_dim // 2) - low) / max(high - low, 1e-3), 0, 1)
        return (plain / self.factor * ramp + plain * (1 - ramp)).astype(np.float32)


def read_rope(values: Mapping[str, Any], context: int) -> Rope:
    """From rope_theta and rope_scaling, or rope_parameters; raises UserError that names what is wrong or not supported.

    `context` is max_position_embeddings, from which a scaling starts where the config does not say.
    """
    scaling, parameters = table(values, "rope_scaling"), table(values, "rope_parameters")
    if scaling and parameters and scaling != parameters:
        raise UserError("rope_scaling and rope_parameters both say how positions are scaled; keep one of them")
    where, given = ("rope_scaling", scaling) if scaling else ("rope_parameters", parameters)
    kind = _kind(given, where)
    if number({**values, **given}, "partial_rotary_factor", 1.0) != 1.0:
        raise UserError("partial_rotary_factor is not supported; only whole heads are rotated")
    rope = Rope(
        theta=number({**values, **given}, "rope_theta", 10000.0),
        type=kind,
        original_context=whole({**given, **_outer(values)}, "original_max_position_embeddings", context),
        **{own: number(given, name) for name, own in _NAMES.items() if name in given},
    )
    if rope.theta <= 1:
        raise UserError(f"rope_theta is {rope.theta}; it must be above 1")
    if kind == "llama3" and rope.low_frequency_factor >= rope.high_frequency_factor:
        raise UserError(f"{where}: low_freq_factor must be less than high_freq_factor; correct the config")
    if kind == "yarn" and rope.beta_slow >= rope.beta_fast:
        raise UserError(f"{where}: beta_slow must be less than beta_fast; correct the config")
    return rope


def _kind(given: Mapping[str, Any], where: str) -> Any:
    """The rope_type, with all keys that it needs and none that it does not know."""
    kind = given.get("rope_type", given.get("type", "default"))
    if not isinstance(kind, str) or kind not in ROPE_TYPES:
        raise UserError(f'{where}: rope_type "{kind}" is not supported; {nearest(str(kind), list(ROPE_TYPES))}')
    needed, optional = ROPE_TYPES[kind]
    known = (*_ANY, *needed, *optional)
    for name in needed:
        if name not in given:
            raise UserError(f'{where}: rope_type "{kind}" needs {name}, which is missing; add it to the config')
    for name in given:
        if name not in known:
            raise UserError(f'{where}: {name} is not supported for rope_type "{kind}"; {nearest(name, known)}')
    return kind


def _outer(values: Mapping[str, Any]) -> dict[str, Any]:
    """The key where some configs have it, beside the scaling; there it counts more, as in transformers."""
    name = "original_max_position_embeddings"
    return {name: values[name]} if values.get(name) is not None else {}
