"""Texts and tokens that a language model is calibrated or compared on."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydoit.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEFAULT = "pydoit.models.calibration:python_documentation"
"""What language models are calibrated on when the recipe does not say."""
SHORTEST = 200
"""Characters of a documentation string that is worth reading."""
LETTERS_A_TOKEN = 40
"""More than any text has, so that no more of a long one is read than is needed."""
MODULES = (
    "statistics", "decimal", "argparse", "logging", "doctest", "unittest.mock", "pickletools", "fractions", "heapq", "random",
    "functools", "collections", "threading", "datetime", "zipfile", "tarfile", "difflib", "textwrap", "optparse", "turtle",
    "subprocess", "typing", "configparser", "shutil", "inspect", "pydoc", "email.message", "json", "csv", "string", "enum",
)  # fmt: skip
"""Modules of Python's library whose documentation the default text is, all of them in Python 3.11 to 3.14."""


def python_documentation() -> str:
    """Documentation strings of Python's own library: prose and examples, other ones than the topics of `help()`.

    Read from the source, not imported. It follows Python's version, which is in the key of the stage that reads it.
    """
    return "\n\n".join(text for name in MODULES for text in _documentation(name))


def read_text(text: str, key: str, file: Path | None) -> str:
    """What `module:callable` returns, or the text of `file` where it is "file"; UserError names the recipe's `key`."""
    if text == "file":
        assert file is not None
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{key}: the file is no UTF-8 text ({error}); convert it") from error
    module, _, name = text.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)()
    except Exception as error:  # whatever the user's function raises
        raise UserError(f"{key}: {text} fails ({error}); correct it") from error
    if not isinstance(made, str):
        raise UserError(f"{key}: {text} returns {type(made).__name__}, not text; correct it")
    return made


def token_pieces(tokenizer: Any, text: str, key: str, count: int, size: int) -> list[NDArray[np.int32]]:
    """Up to `count` pieces of `size` tokens each from the beginning of a text; UserError where it has not one."""
    import numpy as np

    ids = np.array(tokenizer.encode(text[: LETTERS_A_TOKEN * count * size]), dtype=np.int32)
    found = min(count, len(ids) // size)
    if found == 0:
        raise UserError(f"{key}: {len(ids)} tokens are less than a window of {size}; give more text")
    return [ids[index * size : (index + 1) * size] for index in range(found)]


def random_pieces(seed: int, vocabulary: int, count: int, size: int) -> list[NDArray[np.int32]]:
    """Pieces of seeded random tokens, for a model without a tokenizer."""
    import numpy as np

    from pydoit.random_tensors import integers

    names = [f"window{index}" for index in range(count)]
    return [integers(seed, name, (size,), 0, vocabulary - 1).astype(np.int32) for name in names]


def _documentation(module: str) -> Iterator[str]:
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise UserError(f"quantization.calibration: this Python lacks the source of {module}; name another text")
    for node in ast.walk(ast.parse(Path(found.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text is not None and len(text) >= SHORTEST:
                yield text
