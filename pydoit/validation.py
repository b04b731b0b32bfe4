"""Pydantic's errors -> one line a fault: `file:line: key: what is wrong; what to do`."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from pydoit.nearest import nearest
from pydoit.toml_lines import KeyPath

_PLAIN = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}


def faults_of(error: ValidationError, model: type[BaseModel], where: Callable[[KeyPath], str]) -> list[str]:
    """Each fault once, in the order of the file; several branches of one union count as one fault."""
    faults: dict[KeyPath, str] = {}
    for item in error.errors(include_url=False):
        path = _keys(item["loc"], model)
        message = _message(item, path, model)
        faults.setdefault(path, f"{where(path)}: {dotted(path)}: {message}")
    return list(faults.values())


def dotted(path: KeyPath) -> str:
    """("passes", "order", 0) -> passes.order[0]."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "file"


def _keys(location: tuple[int | str, ...], model: type[BaseModel]) -> KeyPath:
    """Drop what pydantic puts into a location beside keys: union branches and "[key]" of a bad mapping key."""
    keys: list[str | int] = []
    annotation: Any = model
    for part in location:
        nested = _step(annotation, part)
        if nested is None:
            if isinstance(part, str) and _is_one_model(annotation):
                keys.append(part)
            continue
        keys.append(part)
        annotation = nested
    return tuple(keys)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _is_one_model(annotation: Any) -> bool:
    """A model, or a model that may be left out: what stands below it is a key, not the name of a branch."""
    options = [option for option in _options(annotation) if option is not type(None)]
    return len(options) == 1 and _is_model(options[0])


def _step(annotation: Any, part: int | str) -> Any:
    """The type below `annotation` at key or index `part`; None when `part` is no key of it."""
    for option in _options(annotation):
        if _is_model(option) and isinstance(part, str):
            for name, info in option.model_fields.items():
                if part in (name, info.alias):
                    return info.annotation
        arguments = typing.get_args(option)
        origin = typing.get_origin(option)
        if origin in (tuple, list) and isinstance(part, int):
            return arguments[0]
        if origin is dict and isinstance(part, str):
            return arguments[1]
    return None


def _options(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    origin = typing.get_origin(annotation)
    if origin is typing.Union or str(origin) == "<class 'types.UnionType'>":
        for option in typing.get_args(annotation):
            yield from _options(option)
    else:
        yield annotation


def _message(item: Any, path: KeyPath, model: type[BaseModel]) -> str:
    kind, context = item["type"], item.get("ctx") or {}
    if kind == "extra_forbidden":
        return f"unknown key; {nearest(str(path[-1]), _known(path[:-1], model))}"
    if kind == "missing":
        return "is missing; add it"
    if kind == "literal_error":
        return f"{item['input']!r} is not a choice; choose {context.get('expected', '')}"
    if kind == "string_pattern_mismatch":
        return f"{str(item['input'])[:60]!r} is malformed; it must match {context.get('pattern', '')}"
    if kind == "value_error":
        text = str(context.get("error", item["msg"]))
        return text if ";" in text else f"{text}; correct the value"
    if kind in _PLAIN:
        return f"{_PLAIN[kind]}, not {_shown(item['input'])}; correct the value"
    text = str(item["msg"]).removeprefix("Input ").removeprefix("Value error, ")
    return f"{text}, not {_shown(item['input'])}; correct the value"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _known(path: KeyPath, model: type[BaseModel]) -> list[str]:
    annotation: Any = model
    for part in path:
        annotation = _step(annotation, part)
    names: list[str] = []
    for option in _options(annotation):
        if _is_model(option):
            names += [info.alias or name for name, info in option.model_fields.items()]
    return names
