"""One recipe in the lock file, as plain data: the parts that may drift, by the names that people read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydoit.keys import digest_of

OURS = "doit-modelbuild"
"""This distribution, in the toolchain."""
# In the order in which they stand in the file and in which drift is told.
PARTS = ("recipe", "arch", "sources", "records", "code", "toolchain", "environment")
# What follows from the checkout alone; the other parts are this machine's.
CHECKED_IN = frozenset({"recipe", "sources", "records", "code"})


@dataclass(frozen=True)
class Artifact:
    """One file of the package."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Entry:
    """What one recipe, or one variant of it, is built from, and what came out."""

    recipe: Mapping[str, Any]
    """The resolved recipe: nested tables without empty values, the preset's passes written out."""
    arch: str = ""
    """What `arch = "native"` stands for; empty where the recipe names an arch."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Model reference or file of the workspace -> `sha256:...` or `revision:...`."""
    records: Mapping[str, str] = field(default_factory=dict)
    """File of tuning records -> `sha256:...`."""
    code: Mapping[str, str] = field(default_factory=dict)
    """File of the workspace's own factories, datasets and passes -> `sha256:...`."""
    toolchain: Mapping[str, str] = field(default_factory=dict)
    """Distribution, compiler or linker -> version."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that change what comes out and are set."""
    artifact: Mapping[str, Artifact] = field(default_factory=dict)
    """Files of the package; empty where it was never built from exactly these parts."""

    @property
    def digest(self) -> str:
        """Identity of the resolved recipe."""
        return digest_of(self.recipe)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Everything that the artifact is made from."""
        return tuple(getattr(self, part) for part in PARTS)
