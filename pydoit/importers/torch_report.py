"""Finds the operators of an exported program that have no translation, with the user's source line of each."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

from pydoit.errors import StageError
from pydoit.importers.import_report import Unsupported
from pydoit.importers.torch_ops.random import RANDOM

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n\s*(?P<code>[^\n]*)')
_LIBRARY = re.compile(
    r"[/\\](site-packages|dist-packages)[/\\]torch[/\\]|[/\\]lib[/\\]python3\.\d+[/\\](?!site-packages|dist-packages)"
)
_DATA_DEPENDENT = {"nonzero", "_unique2", "unique_consecutive", "unique_dim", "masked_select", "repeat_interleave", "bincount"}
_COMPLEX = {"view_as_complex", "view_as_real", "complex", "polar", "real", "imag", "angle", "conj", "_conj", "stft", "istft"}


def unsupported(program: Any, known: set[str]) -> list[Unsupported]:
    """Every operator that is not in `known`, draws random numbers, or has complex numbers; in the order of first use."""
    found: dict[str, list[Any]] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and _is_unsupported(node, known):
            found.setdefault(str(node.target.__name__), []).append(node)
    return [Unsupported(name, len(nodes), where(nodes[0]), _hint(name, nodes[0])) for name, nodes in found.items()]


def where(node: Any) -> str:
    """`node, module, file:line: code` of a node, as far as torch recorded it."""
    parts = [str(node.name)]
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    path = path.removeprefix("L['self'].").removeprefix("model.")
    if path and path not in ("L['self']", "model"):
        parts.append(path)
    line = source_line(node.meta.get("stack_trace") or "")
    return ", ".join([*parts, line] if line else parts)


def source_line(trace: str) -> str:
    """`file:line: code` of the innermost frame in `trace` that is not torch's own; empty where there is none."""
    frames = [match for match in _FRAME.finditer(trace) if not _is_library(match["file"])]
    if not frames:
        return ""
    last = frames[-1]
    code = last["code"].strip()
    return f"{last['file']}:{last['line']}" + (f": {code}" if code else "")


def export_error(error: Exception) -> StageError:
    """What torch.export could not trace, with the line of the user's code that it stood at."""
    text = str(error)
    if "Constraints violated" in text:
        return _bounds_error(text)
    reason = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    place = source_line(_user_code(text)) or _raised_at(error)
    at = f" at {place}" if place else ""
    remedy = "remove control flow that depends on values (torch.where, masks), see the log"
    return StageError(f"torch.export cannot trace the model{at} ({reason[:300]}); {remedy}")


def _bounds_error(text: str) -> StageError:
    """The model does not treat all extents within a dimension's bounds alike; torch suggests narrower ones."""
    lines = [line.strip() for line in text.splitlines()]
    guards = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    suggested = [line for line in lines if re.match(r"\w+ = ", line)]
    reason = "; ".join(guards)[:400] or lines[0]
    hint = f" (torch suggests {'; '.join(suggested)[:200]})" if suggested else ""
    return StageError(f"model.dims: the model does not take all extents alike ({reason}); narrow the bounds{hint}")


def _user_code(text: str) -> str:
    """torch's own extract of the user's stack in an error about a value that only a run knows."""
    return text.partition("User Stack")[2] or text


def _raised_at(error: BaseException) -> str:
    """The innermost frame of the traceback outside of torch, the standard library and this package."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [f for f in frames if f.lineno and not f.filename.startswith("<") and not _is_library(f.filename)]
    return f"{users[-1].filename}:{users[-1].lineno}: {users[-1].line}" if users else ""


def _is_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None or Path(__file__).parent in Path(file).parents


def _is_unsupported(node: Any, known: set[str]) -> bool:
    name = str(node.target.__name__)
    return name not in known or name in RANDOM or _is_complex(node)


def _is_complex(node: Any) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(getattr(getattr(item, "dtype", None), "is_complex", False) for item in values)


def _hint(name: str, node: Any) -> str:
    stem = name.partition(".")[0]
    if name in RANDOM:
        return "its result is random; leave it out of forward, or pass the numbers as an input"
    if stem in _DATA_DEPENDENT:
        return "the size of its result depends on values; use masks and torch.where instead"
    if _is_complex(node) or stem in _COMPLEX:
        return "complex numbers are not supported; write it with pairs of real numbers"
    return "there is no translation; write it with other operators"
