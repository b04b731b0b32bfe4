"""Nested inputs and outputs of a PyTorch model as flat tensors with stable names, such as `past_0_key`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch


def named_outputs(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in a model's result: dict keys and fields name them, positions number them, one alone is `output`."""
    if isinstance(value, torch.Tensor):
        yield name or "output", value
    elif isinstance(value, Mapping) or hasattr(value, "items"):
        for key, item in value.items():
            yield from named_outputs(item, f"{name}_{key}" if name else str(key))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        yield from named_outputs(fields, name)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from named_outputs(dict(zip(value._fields, value, strict=True)), name)
    elif isinstance(value, (tuple, list)):
        single = len(value) == 1 and not name
        for index, item in enumerate(value):
            yield from named_outputs(item, "" if single else f"{name or 'output'}_{index}")


def parameter_of(name: str, parameters: Iterable[str]) -> str:
    """The argument of `forward` that an input belongs to: itself, or the longest that `past_0_key` starts with.

    Only a name with a number after the argument's is a part of it, so that a misspelt name is no part of anything.
    """
    known = list(parameters)
    if name in known:
        return name
    parts = name.split("_")
    for count in range(len(parts) - 1, 0, -1):
        head = "_".join(parts[:count])
        if head in known and any(part.isdigit() for part in parts[count:]):
            return head
    return name


def nest(values: Mapping[str, Any], parameters: Iterable[str]) -> dict[str, Any]:
    """Flat inputs as the arguments of `forward`: numbers in a name make lists, words make dicts."""
    known = list(parameters)
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        owner = parameter_of(name, known)
        if owner == name:
            arguments[name] = value
            continue
        place = arguments.setdefault(owner, {})
        *path, last = _path(name[len(owner) + 1 :])
        for step in path:
            place = place.setdefault(step, {})
        place[last] = value
    return {name: _as_list(value) for name, value in arguments.items()}


def _path(text: str) -> list[str]:
    """`0_key_states` as ["0", "key_states"]."""
    groups = itertools.groupby(text.split("_"), str.isdigit)
    return [step for numeric, parts in groups for step in (parts if numeric else ["_".join(parts)])]


def _as_list(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _as_list(item) for key, item in value.items()}
    if set(inner) == {str(index) for index in range(len(inner))}:
        return [inner[str(index)] for index in range(len(inner))]
    return inner
