"""The kernels of a module that tuning can improve, and the key by which a record finds its kernel again."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from pydoit.kernels.scheduling import Plan, plan_function
from pydoit.tvm_compat import tirx

# Words that are no variables: they keep their spelling in normalized TIR.
_TOKEN = re.compile(r'"[^"]*"|\.[A-Za-z_]\w*|[A-Za-z_]\w*')
_KEYWORDS = frozenset(
    ("T", "I", "R", "def", "with", "for", "in", "if", "else", "and", "or", "not", "True", "False", "None", "private",
     "s_tir", "from", "import", "as", "range", "scope", "dtype", "axes", "align", "strides", "elem_offset")
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A function whose schedule has parameters."""

    name: str
    key: str
    function: Any
    plan: Plan


def function_key(function: Any) -> str:
    """Return the sha256 of a function's text with variables numbered by first appearance.

    Names of values come from the model around the function; numbering them keeps the key when another layer changes.
    """
    text = function.without_attr("global_symbol").script(show_meta=False)
    numbers: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        token = match.group()
        if token[0] in '".' or token in _KEYWORDS:
            return token
        return numbers.setdefault(token, f"v{len(numbers)}")

    normalized = _TOKEN.sub(rename, text)
    return hashlib.sha256(normalized.encode()).hexdigest()


def extract_tasks(module: Any) -> list[Task]:
    """Return the tunable functions of a module, each key once, sorted by name."""
    found: dict[str, Task] = {}
    for variable, function in module.functions_items():
        if not isinstance(function, tirx.PrimFunc):
            continue
        plan = plan_function(function)
        if plan.anchor is None:
            continue
        key = function_key(function)
        if key not in found or variable.name_hint < found[key].name:
            found[key] = Task(variable.name_hint, key, function, plan)
    return sorted(found.values(), key=lambda task: (task.name, task.key))
