"""A Ray cluster: jobs are Ray tasks that ask for the resources a stage needs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pydoit.errors import UserError
from pydoit.farm.cluster import ClusterError, Running


class RayCluster:
    """The cluster at `address`: "auto", host:port of its head, or ray://host:10001. Connects when it is first asked."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._guard = threading.Lock()
        self._ray: Any = None

    def resources(self) -> Mapping[str, float]:
        found: Mapping[str, float] = self._connected().cluster_resources()
        return found

    def submit(self, job: bytes, resources: Mapping[str, float]) -> Running:
        from pydoit.farm.work import work

        ray = self._connected()
        named = {"CPU": "num_cpus", "GPU": "num_gpus"}
        options: dict[str, Any] = {named[name]: amount for name, amount in resources.items() if name in named}
        options["resources"] = {name: amount for name, amount in resources.items() if name not in named}
        # A worker that is lost is started anew; a stage that fails is an answer, not an exception.
        return _Task(ray, ray.remote(work).options(max_retries=2, **options).remote(job))

    def _connected(self) -> Any:
        with self._guard:
            if self._ray is None:
                self._ray = self._connect()
            return self._ray

    def _connect(self) -> Any:
        try:
            import ray
        except ImportError:
            raise UserError("[executor] kind = \"ray\" needs ray; run `pip install 'doit-modelbuild[ray]'`") from None
        try:
            if not ray.is_initialized():
                ray.init(self._address, log_to_driver=False, logging_level="ERROR", include_dashboard=None)
        except Exception as error:  # Ray raises whatever its parts raise
            reason = _line(error)
            raise ClusterError(f"the Ray cluster {self._address} cannot be reached ({reason}); start it") from error
        return ray


class _Task:
    """One Ray task."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference

    def wait(self, seconds: float) -> bytes | None:
        try:
            done, _ = self._ray.wait([self._reference], timeout=seconds)
            return bytes(self._ray.get(self._reference)) if done else None
        except self._ray.exceptions.RayError as error:
            raise ClusterError(f"the cluster lost the stage ({_line(error)}); build again") from None

    def cancel(self) -> None:
        self._ray.cancel(self._reference, force=True)


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200]
