"""Seeded runs against a real S3 server behind a proxy that spoils its answers: whatever comes, the right bytes come out.

A run is a chain of stages over the store and the remote, as a build has it: what cannot be restored is made anew. Its
last output is laid out as an artifact and compared with that of a chain without any remote.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from conftest import make_workspace
from moto.server import ThreadedMotoServer
from remote_faults import SECONDS, FaultProxy, commit, open_cache

from pydoit.keys import digest_of
from pydoit.remote import RemoteCache
from pydoit.remote.filesystem import BLOCK_BYTES, FilesystemTransport
from pydoit.remote.transport import Moved
from pydoit.store import Entry, Store

STAGES = ("import", "optimize", "compile", "weights", "package")
SIZES = (0, 10, 5_000, 1_500_000)
FAULTS = ("hang", "error", "truncate", "tamper")


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    endpoint = f"http://127.0.0.1:{port}"
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="models")
    found = FaultProxy(port)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}.items():
            patch.setenv(name, value)
        patch.setenv("AWS_ENDPOINT_URL", found.url)
        yield found
        bucket.cache_clear()
    found.close()
    server.stop()


def made(stage: str, document: dict[str, Any]) -> dict[str, bytes]:
    """What a stage makes: bytes that follow from its key document alone."""
    draw = random.Random(digest_of(document))
    return {f"{stage}/{number}": draw.randbytes(SIZES[(number + len(stage)) % len(SIZES)]) for number in range(3)}


def chain(store: Store, remote: RemoteCache | None, recipe: int) -> tuple[list[Entry], int]:
    """Bring all stages up to date; the entries, and how many of them came from the remote."""
    entries, restored, digest = [], 0, ""
    for stage in STAGES:
        document = {"recipe": recipe, "stage": stage, "input": digest}
        key = digest_of(document)
        entry = store.lookup(key)
        if entry is None and remote is not None:
            entry = remote.fetch(key)
            restored += entry is not None
        entry = entry or commit(store, document, made(stage, document), stage)
        entries.append(entry)
        digest = entry.output_digest
    return entries, restored


def artifact(store: Store, entries: list[Entry], folder: Path) -> dict[str, bytes]:
    """The last output, copied out as a build publishes it."""
    for name in entries[-1].outputs:
        store.restore(entries[-1], name, folder / name)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def run(proxy: FaultProxy, folder: Path, seed: int) -> tuple[int, float]:
    """One seeded run; how many stages came from the remote, and what the whole took beyond what it takes without faults."""
    draw = random.Random(seed)
    prefix = f"run{seed}"
    chosen = draw.sample(FAULTS, draw.randint(1, len(FAULTS)))
    rates = {fault: draw.choice((0.01, 0.05, 0.2)) for fault in chosen}
    expected, _ = chain(Store(folder / "alone"), None, seed)
    wanted = artifact(Store(folder / "alone"), expected, folder / "wanted")
    proxy.play(seed, {})
    bucket()

    proxy.play(seed, {} if draw.random() < 0.7 else rates, -1)
    with_remote(folder / "alone", prefix).push(expected)
    proxy.play(seed, rates, draw.randint(1, 30) if draw.random() < 0.3 else -1)
    store, started = Store(folder / "store"), time.monotonic()
    remote = with_remote(folder / "store", prefix)
    entries, restored = chain(store, remote, seed)
    remote.push(entries)
    seconds = time.monotonic() - started
    assert [entry.output_digest for entry in entries] == [entry.output_digest for entry in expected]
    assert artifact(store, entries, folder / "out") == wanted

    proxy.play(seed, {})
    for name in ("store", "later"):  # the same machine once more, and another one: nothing wrong was left anywhere
        entries, _ = chain(Store(folder / name), with_remote(folder / name, prefix), seed)
        assert artifact(Store(folder / name), entries, folder / f"out-{name}") == wanted
    return restored, seconds


class Bucket(FilesystemTransport):
    def forget(self, folder: str) -> None:
        """Remove what a run has left in the server's memory."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(f"{self._root}/{folder}", recursive=True)


@cache
def bucket() -> Bucket:
    """One client for all runs: it takes longer to make than the deadlines of these tests allow."""
    transport = Bucket("s3://models", SECONDS)
    transport.size("nothing")
    return transport


@dataclass
class Below:
    """A folder of the bucket."""

    prefix: str

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        return bucket().read(f"{self.prefix}/{name}", start, end)

    def size(self, name: str) -> int | None:
        return bucket().size(f"{self.prefix}/{name}")

    def put(self, name: str, source: Path | bytes, moved: Moved) -> None:
        bucket().put(f"{self.prefix}/{name}", source, moved)


def with_remote(store: Path, prefix: str) -> RemoteCache:
    return open_cache(Store(store), Below(prefix))


def test_a_large_blob_goes_in_parts_and_comes_in_ranges(proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.play(0, {})
    source, store = Store(tmp_path / "source"), Store(tmp_path / "store")
    entry = commit(source, {"large": 1}, {"weights": random.Random(0).randbytes(2 * BLOCK_BYTES + 12_345)})
    transport = FilesystemTransport("s3://models/large", 10.0)
    assert open_cache(source, transport, seconds=10.0).push([entry]).entries == 1
    assert open_cache(store, transport, seconds=10.0).fetch(entry.key) == entry
    assert store.lookup(entry.key) == entry


@pytest.mark.parametrize("seed", range(6))
def test_a_run_ends_in_the_right_bytes(proxy: FaultProxy, tmp_path: Path, seed: int) -> None:
    run(proxy, tmp_path, seed)


@pytest.mark.slow
def test_two_hundred_runs_end_in_the_right_bytes(proxy: FaultProxy, tmp_path: Path) -> None:
    """Minutes."""
    restored, slowest = 0, 0.0
    for seed in range(1000, 1200):
        came, seconds = run(proxy, tmp_path / str(seed), seed)
        restored += came
        slowest = max(slowest, seconds)
        shutil.rmtree(tmp_path / str(seed))
        bucket().forget(f"run{seed}")
    print(f"{restored} of {200 * len(STAGES)} stages came from the remote; the slowest run took {slowest:.1f} s")
    assert 100 < restored < 200 * len(STAGES)  # the faults neither stop everything nor nothing
    assert slowest < 10


@pytest.mark.slow
def test_real_builds_end_in_the_right_artifact(proxy: FaultProxy, tmp_path: Path) -> None:
    """Minutes: `doit build` itself, with the server failing in each way, and dying midway."""
    variables = {
        "MODELBUILD_REMOTE": "s3://models/real", "MODELBUILD_REMOTE_MODE": "read-write",
        "MODELBUILD_CACHE_SECRET": "a secret of this test",
    }  # fmt: skip
    settings = 'schema = 1\ndefault = ["tiny"]\n\n[cache]\ntimeout_seconds = 1.0\n'
    proxy.play(0, {})
    first = make_workspace(tmp_path / "first")
    assert first.doit("build", "tiny", **variables).returncode == 0
    for number, (rates, dies_at) in enumerate(
        [({"hang": 0.1}, -1), ({"error": 0.3}, -1), ({"truncate": 0.2}, -1), ({"tamper": 0.2}, -1), ({}, 12)]
    ):
        machine = make_workspace(tmp_path / f"machine{number}")
        machine.write("modelbuild.toml", settings)
        proxy.play(number, rates, dies_at)
        done = machine.doit("build", **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        for name in ("lib.so", "weights/model.safetensors", "manifest.json"):
            ours, theirs = (item.root / "artifacts/tiny" / name for item in (first, machine))
            assert ours.read_bytes() == theirs.read_bytes(), (name, rates)
