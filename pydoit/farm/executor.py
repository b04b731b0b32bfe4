"""Gives stages to a cluster: says what a stage needs there, sends its inputs, waits, and brings the entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydoit import process
from pydoit.code import CodeDigests, with_packages
from pydoit.digest import StatCache
from pydoit.errors import StageError
from pydoit.farm.cluster import Cluster, ClusterError
from pydoit.farm.job import Answer, Job, decode_answer, encode_job
from pydoit.nodes import Node
from pydoit.remote import RemoteCache
from pydoit.results import File
from pydoit.settings import RemoteSettings
from pydoit.store import Blob

POLL_SECONDS = 0.5
MEASURED = frozenset({"verify", "profile"})
GPU_ARCH = "gpu_arch:"
"""Ray's custom resource of a machine's GPUs: `ray start --resources '{"gpu_arch:sm_90": 1}'`."""


@dataclass(frozen=True)
class Farm:
    """The cluster of one command."""

    cluster: Cluster
    remote: RemoteCache
    settings: RemoteSettings
    root: Path
    stats: StatCache

    def lacking(self, node: Node) -> str:
        """What the cluster lacks for the stage; empty when it can run there."""
        needed, held = needs(node), self.cluster.resources()
        missing = [name for name, amount in needed.items() if held.get(name, 0.0) < amount]
        return f"needs {', '.join(missing)}, which the cluster does not have" if missing else ""

    def run(self, node: Node, document: Mapping[str, Any], folders: Mapping[str, Mapping[str, File]],
            tick: Callable[[float, str], None]) -> Answer:  # fmt: skip
        """Run the stage there; its outputs are in the store afterwards. Raises RemoteError, ClusterError, StageError."""
        sources: dict[Blob, Path] = {}

        def blobs(files: Mapping[str, File]) -> dict[str, Blob]:
            found = {name: Blob(file.sha256, file.path.stat().st_size) for name, file in files.items()}
            sources.update({blob: files[name].path for name, blob in found.items()})
            return found

        job = Job(
            node.stage, node.module, document, {stage: blobs(files) for stage, files in folders.items()},
            blobs({name: File(path, self.stats.digest(path)) for name, path in node.files.items()}),
            blobs(self._code(node.modules)), self.settings.url, self.settings.timeout_seconds,
        )  # fmt: skip
        self.remote.send_blobs(sources)
        answer = self._wait(encode_job(job), needs(node), tick)
        if answer.status == "lost":
            raise ClusterError(f"on the cluster: {answer.reason}")
        if answer.entry is not None:
            self.remote.bring_blobs(Blob(item["sha256"], item["bytes"]) for item in answer.entry["outputs"].values())
        return answer

    def _wait(self, job: bytes, resources: Mapping[str, float], tick: Callable[[float, str], None]) -> Answer:
        running = self.cluster.submit(job, resources)
        seconds = 0.0
        try:
            while (data := running.wait(POLL_SECONDS)) is None:
                if process.is_stopping():
                    raise KeyboardInterrupt
                seconds += POLL_SECONDS
                tick(seconds, "on the cluster")
        except BaseException:
            running.cancel()
            raise
        try:
            return decode_answer(data)
        except (ValueError, TypeError) as error:
            raise StageError(f"the cluster's answer cannot be read ({error}); install the same version there") from None

    def _code(self, modules: Iterable[str]) -> dict[str, File]:
        digests = CodeDigests(self.root)
        names = with_packages(self.root, {name for module in modules for name in digests.digest(module)})
        return {name: File(self.root / name, self.stats.digest(self.root / name)) for name in sorted(names)}


def needs(node: Node) -> dict[str, float]:
    """Resources of the cluster by name: a CPU, and for what runs on a GPU one of the recipe's architecture."""
    given = node.spec.get("target") or node.spec.get("model", {}).get("target") or {}
    if node.stage in MEASURED and given.get("kind") == "cuda":
        return {"CPU": 1.0, "GPU": 1.0, f"{GPU_ARCH}{given['arch']}": 1.0}
    return {"CPU": 1.0}
