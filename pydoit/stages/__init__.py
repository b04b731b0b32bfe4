"""The stages of a build: the literal list, and the shape that every stage module has."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pydoit.frozen import Frozen

ORDER = (
    "fetch", "import", "optimize", "tune", "compile", "tokenizer", "quantize", "weights", "verify", "profile", "package",
)  # fmt: skip

# Every recipe has these; the others are for recipes that ask for what they do.
STAGES = tuple(stage for stage in ORDER if stage != "quantize")

# Language models differ in what these stages do; each has its own module of the same shape.
LANGUAGE_STAGES = frozenset({"import", "optimize", "quantize", "weights", "verify", "profile"})

# Stages whose numbers other work on the machine would distort: they run alone.
MEASURING = frozenset({"profile"})


class Stage(Protocol):
    """What a module of this package holds."""

    TOOLS: tuple[str, ...]
    """Distributions (and "c++") whose versions belong to the action key."""
    READS: Mapping[str, tuple[str, ...]]
    """Upstream stage -> patterns (fnmatch) of the output files that are read."""
    Spec: type[Frozen]
    """The recipe's values that this stage reads, and no others."""

    def run(self, spec: Any, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
        """Write the output files into `out`; return the measurements."""
        ...


def implementation(stage: str, *, is_language: bool) -> str:
    """Name of the module that does a stage's work."""
    return f"language_{stage}" if is_language and stage in LANGUAGE_STAGES else stage


def module_name(implementation: str) -> str:
    """Full name of a stage's module; `import` is a keyword, so its module is `import_`."""
    return f"pydoit.stages.{'import_' if implementation == 'import' else implementation}"


def load_stage(implementation: str) -> Any:
    """The module of a stage (a `Stage`)."""
    return importlib.import_module(module_name(implementation))
