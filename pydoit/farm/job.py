"""What a machine of the cluster is told, and what it answers: JSON, so that nothing but values travels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydoit.keys import canonical, parse_json
from pydoit.settings import RemoteSettings
from pydoit.store import Blob

SCHEMA = 1


@dataclass(frozen=True)
class Job:
    """One stage to run elsewhere."""

    stage: str
    """The stage's name."""
    module: str
    """Name of the module that does the work."""
    document: Mapping[str, Any]
    """The key document as it is where the job comes from."""
    folders: Mapping[str, Mapping[str, Blob]]
    """Upstream stage -> file -> blob."""
    files: Mapping[str, Blob]
    """Files of the workspace by the name under which the stage sees them."""
    code: Mapping[str, Blob]
    """The workspace's own modules that the stage imports, by path."""
    remote: str
    """Address of the remote cache through which blobs go."""
    timeout_seconds: float

    @property
    def settings(self) -> RemoteSettings:
        return RemoteSettings(self.remote, "read-write", (), self.timeout_seconds)


@dataclass(frozen=True)
class Answer:
    """What came of a job."""

    status: str
    """built, hit (the machine had it already), deferred, failed, or lost (its files could not come or go)."""
    reason: str = ""
    entry: Mapping[str, Any] | None = None
    """The store's entry, under the key that the machine itself has for the stage."""
    measurements: Mapping[str, Any] | None = None
    """Of a stage that missed its gate."""
    seconds: float = 0.0
    log: str = ""
    """The end of the worker's output."""


def encode_job(job: Job) -> bytes:
    return canonical({"schema": SCHEMA, **asdict(job)})


def decode_job(data: bytes) -> Job:
    """ValueError for another schema: the cluster's machine has another version."""
    value = parse_json(data)
    if value.pop("schema") != SCHEMA:
        raise ValueError("the job is of another version of doit-modelbuild; install the same one on the cluster")
    folders = {stage: _blobs(names) for stage, names in value.pop("folders").items()}
    return Job(folders=folders, files=_blobs(value.pop("files")), code=_blobs(value.pop("code")), **value)


def encode_answer(answer: Answer) -> bytes:
    return canonical(asdict(answer))


def decode_answer(data: bytes) -> Answer:
    return Answer(**parse_json(data))


def _blobs(value: Mapping[str, Any]) -> dict[str, Blob]:
    return {name: Blob(item["sha256"], item["bytes"]) for name, item in value.items()}
