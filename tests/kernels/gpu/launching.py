"""Runs Triton functions in Triton's interpreter: the C++ expressions of their launches are evaluated in Python."""

from __future__ import annotations

import re
from typing import Any

from pydoit.kernels.triton.launch import TritonFunction


def evaluate(expression: str, tensors: dict[str, Any]) -> Any:
    """A C++ expression over tensors' shapes."""
    text = re.sub(r"static_cast<\w+>", "int", expression).replace(".shape()", ".shape").replace("&&", "and")
    return eval(text.replace("/", "//"), {"true": True, "int": int, **tensors})


def run(function: TritonFunction, *tensors: Any) -> tuple[Any, ...]:
    """Launch on torch tensors, in the order of the function's parameters."""
    named = dict(zip(function.tensors, tensors, strict=True))
    launched = 0
    for launch in function.launches:
        if not evaluate(launch.when, named):
            continue
        launched += 1
        grid = tuple(int(evaluate(part, named)) for part in launch.grid)
        arguments = [evaluate(argument, named) for argument in launch.arguments]
        given = dict(zip(launch.types, arguments, strict=True))
        launch.kernel[grid](**given, **launch.constants)
    assert launched
    return tensors
