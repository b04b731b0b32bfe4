"""Runs on a machine of the cluster: brings a job's files from the remote cache, runs the stage, sends what it made.

The machine has a store of its own. What it made stands there, and is told, under its own key: its tools, its hardware.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit import target, tools
from pydoit.code import own_code
from pydoit.errors import ModelBuildError
from pydoit.farm.job import Answer, Job, decode_job, encode_answer
from pydoit.keys import digest_of
from pydoit.locks import locked
from pydoit.process import make_job, measured_alone, run_in_turn
from pydoit.remote import RemoteCache, open_remote
from pydoit.remote.transport import RemoteError
from pydoit.stages import module_name
from pydoit.store import Blob, Entry, Store, encode_entry

LOG_BYTES = 100_000
PATIENCE = 12.0
"""There is no other way to come by the files, so requests may take longer than in a build that can do without."""


def work(data: bytes) -> bytes:
    """Do an encoded job; its answer. Raises nothing that the job itself can cause."""
    try:
        answer = _work(decode_job(data))
    except RemoteError as error:
        answer = Answer("lost", str(error))
    except (ModelBuildError, ValueError, OSError) as error:
        answer = Answer("failed", f"on the cluster: {error}")
    return encode_answer(answer)


def store_folder() -> Path:
    """The store of this machine: MODELBUILD_CACHE, else the user's cache folder."""
    from platformdirs import user_cache_path

    chosen = os.environ.get("MODELBUILD_CACHE")
    return Path(chosen).expanduser().resolve() if chosen else user_cache_path("doit-modelbuild")


def own_document(job: Job) -> dict[str, Any]:
    """The key document with what this machine is; ValueError where its package is another version."""
    code = own_code().digest(module_name(job.module))
    if code != job.document["code"]:
        raise ValueError("another version of doit-modelbuild is installed there; install the same on all machines")
    hardware = {"cpu": tools.cpu_name()}
    if "gpu" in job.document["hardware"]:
        hardware["gpu"] = tools.gpu_names()
    return {
        **job.document,
        "tools": {name: tools.version(name) for name in job.document["tools"]},
        "environment": tools.keyed_environment(),
        "hardware": hardware if job.document["hardware"] else {},
    }


def _work(job: Job) -> Answer:
    store = Store(store_folder())
    document = own_document(job)
    key = digest_of(document)
    remote = open_remote(job.settings, store, lambda _: None, PATIENCE, needs_keys=False)
    with store.in_use(), locked(store.root / "locks" / f"{key}.lock"):
        entry = store.lookup(key)
        if entry is not None:
            return _sent(remote, store, entry, "hit")
        lacking = target.lacking(job.stage, job.document["config"])
        if lacking:
            return Answer("deferred", lacking)
        remote.bring_blobs(blob for files in (*job.folders.values(), job.files, job.code) for blob in files.values())
        return _run(job, document, key, store, remote)


def _run(job: Job, document: dict[str, Any], key: str, store: Store, remote: RemoteCache) -> Answer:
    with store.scratch() as folder:
        inputs = {stage: _laid_out(store, names, folder / "inputs" / stage) for stage, names in job.folders.items()}
        _laid_out(store, job.files, folder / "files")
        inputs |= {name: folder / "files" / name for name in job.files}
        if "fetch" in job.folders:
            (inputs["fetch"] / "model").mkdir(exist_ok=True)
        root = _laid_out(store, job.code, folder / "workspace")
        out, log = folder / "out", folder / "log"
        out.mkdir()
        made = make_job(job.module, job.document["config"], inputs, out, root)
        outcome = run_in_turn(made, measured_alone(job.stage, job.document["config"]), folder, log, lambda *_: None)
        status, text = outcome.result["status"], log.read_bytes()[-LOG_BYTES:].decode(errors="replace")
        measurements = outcome.result.get("measurements", {})
        if status != "built":
            return Answer(status, outcome.result.get("reason", ""), None, measurements, outcome.seconds, text)
        entry = store.commit(key, job.stage, document, out, measurements, outcome.seconds)
    return _sent(remote, store, entry, "built", text)


def _sent(remote: RemoteCache, store: Store, entry: Entry, status: str, log: str = "") -> Answer:
    remote.send_blobs({blob: store.blob_path(blob.sha256) for blob in entry.outputs.values()})
    return Answer(status, "", encode_entry(entry), None, entry.seconds, log)


def _laid_out(store: Store, names: Mapping[str, Blob], folder: Path) -> Path:
    """A folder of links to blobs; `folder` is there even without any."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, blob in names.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(store.blob_path(blob.sha256))
    return folder
