"""What is asked of a cluster; Ray serves it, and tests with processes of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pydoit.errors import ModelBuildError


class ClusterError(ModelBuildError):
    """The cluster cannot be reached, or lost what it was doing."""


class Running(Protocol):
    """A job on its way."""

    def wait(self, seconds: float) -> bytes | None:
        """The answer, or None when there is none after `seconds`. Raises ClusterError when it will never come."""

    def cancel(self) -> None:
        """Stop it; nobody waits any more."""


class Cluster(Protocol):
    """Machines that run `pydoit.farm.work.work`."""

    def resources(self) -> Mapping[str, float]:
        """What the machines have together, by name. Raises ClusterError."""

    def submit(self, job: bytes, resources: Mapping[str, float]) -> Running:
        """Run a job where these resources are free."""
