"""The errors of a build: one root, each message states fault, value and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ModelBuildError(Exception):
    """Root of everything that a user can cause or meet; its text is one line for people."""

    exit_status = 1


class UserError(ModelBuildError):
    """A command, recipe, variant, file or value is wrong; ends with exit status 2."""

    exit_status = 2


class RecipeError(UserError):
    """A recipe or workspace file is wrong: `file:line: key: what is wrong; what to do`, one line for each fault."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class StageError(ModelBuildError):
    """A stage ran and failed; ends with exit status 1."""


class GateError(StageError):
    """A measured value missed its bound: nothing is published, the measurements are kept for the report."""

    def __init__(self, message: str, measurements: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.measurements = dict(measurements)


class Deferred(ModelBuildError):  # noqa: N818 - no error: the stage waits for another machine
    """A stage needs what this machine lacks (a GPU, a login); the message says what it needs."""


class StoreError(ModelBuildError):
    """The store cannot be read or written (full disk, no rights, damaged blob)."""
