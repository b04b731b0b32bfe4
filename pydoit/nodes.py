"""Nodes of the stage graph as plain data, and the key document of a node (pure but for file digests)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydoit import tools
from pydoit.code import CodeDigests, own_code
from pydoit.keys import KEY_SCHEMA
from pydoit.stages import module_name


@dataclass(frozen=True)
class Node:
    """One stage of one recipe."""

    recipe: str
    stage: str
    spec: Mapping[str, Any]
    """The stage's `Spec` as JSON values: what it reads of the recipe."""
    reads: Mapping[str, tuple[str, ...]]
    """Upstream stage -> patterns of the files that are read; they are part of the key."""
    implementation: str = ""
    """Name of the module that does the work; the stage's own when empty."""
    optional: tuple[str, ...] = ()
    """Stages of `reads` that may be deferred: then nothing of them is read."""
    tools: tuple[str, ...] = ()
    """Distributions (and "c++") whose versions belong to the key."""
    after: tuple[str, ...] = ()
    """Stages that must have ended well before this one starts, though it reads nothing of them."""
    modules: tuple[str, ...] = ()
    """The user's own modules that the stage imports."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Files of the workspace that are read, by the name under which the stage sees them."""
    local: Path | None = None
    """fetch only: a model of the workspace, read in place."""
    hardware: Mapping[str, str] = field(default_factory=dict)
    """The hardware that the result depends on."""

    @property
    def module(self) -> str:
        """Name of the stage's module."""
        return self.implementation or self.stage

    @property
    def upstream(self) -> tuple[str, ...]:
        """Stages that come before this one."""
        return (*self.reads, *(name for name in self.after if name not in self.reads))


def select(files: Mapping[str, Any], patterns: tuple[str, ...]) -> dict[str, Any]:
    """The output files whose names match one of the patterns."""
    return {name: value for name, value in files.items() if any(fnmatchcase(name, pattern) for pattern in patterns)}


class Documents:
    """Makes key documents; remembers code digests, which many nodes share."""

    def __init__(self, root: Path) -> None:
        self._user_code = CodeDigests(root)
        self._own: dict[str, dict[str, str]] = {}
        self._user: dict[str, dict[str, str]] = {}

    def document(self, node: Node, inputs: Mapping[str, Mapping[str, str]], files: Mapping[str, str]) -> dict[str, Any]:
        """Everything that can change the node's output, as a JSON value; its digest is the action key.

        `inputs`: upstream stage -> file -> sha256; `files`: name of a workspace file -> sha256.
        """
        return {
            "schema": KEY_SCHEMA,
            "stage": node.stage,
            "config": dict(node.spec),
            "inputs": {stage: dict(names) for stage, names in inputs.items()},
            "files": dict(files),
            "tools": {name: tools.version(name) for name in node.tools},
            "environment": tools.keyed_environment(),
            "hardware": dict(node.hardware),
            "code": self._own_code(node.module),
            "modules": {name: self._module(name) for name in node.modules},
        }

    def _own_code(self, stage: str) -> dict[str, str]:
        if stage not in self._own:
            self._own[stage] = own_code().digest(module_name(stage))
        return self._own[stage]

    def _module(self, name: str) -> dict[str, str]:
        if name not in self._user:
            self._user[name] = self._user_code.digest(name)
        return self._user[name]
