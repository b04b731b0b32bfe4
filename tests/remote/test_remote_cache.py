"""Entries and blobs through a remote: what comes is whole and signed, or nothing comes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from remote_faults import SECONDS, SECRET, FaultyTransport, MemoryTransport, commit, open_cache

from pydoit import collect
from pydoit.keys import canonical
from pydoit.remote import Moved
from pydoit.remote.download import FIRST_RANGE, blob_name
from pydoit.remote.signing import Trust, read_trust
from pydoit.remote.upload import entry_name
from pydoit.store import Entry, Store, encode_entry

FILES = {"lib.so": b"code" * 1000, "weights/model.safetensors": bytes(range(256)) * 20_000, "empty": b""}


class Shared:
    """One entry on a remote in memory, and an empty store on another machine."""

    def __init__(self, folder: Path) -> None:
        self.transport = MemoryTransport()
        self.source, self.store = Store(folder / "source"), Store(folder / "store")
        self.entry = commit(self.source, {"a": 1}, FILES)
        self.sent = open_cache(self.source, self.transport).push([self.entry])
        self.told: list[str] = []

    @property
    def key(self) -> str:
        return self.entry.key

    def blob(self, name: str = "lib.so") -> str:
        return blob_name(self.entry.outputs[name].sha256)

    def fetch(self, fault: Any = lambda *_: "", trust: Trust = SECRET) -> Entry | None:
        transport = FaultyTransport(self.transport, fault)
        return open_cache(self.store, transport, trust, self.told).fetch(self.key)

    def is_empty(self) -> bool:
        return self.store.lookup(self.key) is None and not list(self.store.root.glob("actions/*/*"))


class BrokenOff(FaultyTransport):
    """Refuses what lies behind a place in one file; ranges are asked for side by side, in no certain order."""

    def __init__(self, inner: MemoryTransport, broken: str, place: int) -> None:
        super().__init__(inner, lambda *_: "")
        self.broken, self.place = broken, place

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        if name == self.broken and start >= self.place:
            raise PermissionError("403 Forbidden")
        return super().read(name, start, end)


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


def test_an_entry_comes_whole(shared: Shared, tmp_path: Path) -> None:
    size = sum(map(len, FILES.values()))
    assert shared.sent == Moved(1, 3, size + len(SECRET.seal(encode_entry(shared.entry))))
    assert shared.fetch() == shared.entry == shared.store.lookup(shared.key)
    for name, data in FILES.items():
        shared.store.restore(shared.entry, name, tmp_path / "out" / name)
        assert (tmp_path / "out" / name).read_bytes() == data
    assert shared.told == []
    assert not list(shared.store.root.glob("partial/*"))


def test_the_entry_goes_last(shared: Shared) -> None:
    assert shared.transport.names("put")[-1] == entry_name(shared.key)


def test_a_second_push_sends_nothing(shared: Shared) -> None:
    assert open_cache(shared.source, shared.transport).push([shared.entry]) == Moved()


def test_blobs_that_are_here_are_not_asked_for(shared: Shared) -> None:
    other = commit(shared.store, {"b": 1}, {"x": FILES["lib.so"]})
    shared.fetch()
    assert blob_name(other.outputs["x"].sha256) not in shared.transport.names("read")


@pytest.mark.parametrize("trust", [Trust(secret=b"another secret here"), Trust(frozenset({bytes(32)})), Trust()])
def test_an_entry_of_a_stranger_is_a_miss(shared: Shared, trust: Trust) -> None:
    assert shared.fetch(trust=trust) is None
    assert shared.is_empty()
    assert not any(name.startswith("blobs/") for name in shared.transport.names("read"))


def test_without_keys_one_line_says_so(shared: Shared) -> None:
    shared.fetch(trust=Trust())
    assert len(shared.told) == 1
    assert "no key is trusted" in shared.told[0]


def test_an_unsigned_entry_is_a_miss(shared: Shared) -> None:
    shared.transport.held[entry_name(shared.key)] = canonical(encode_entry(shared.entry))
    assert shared.fetch() is None
    assert shared.is_empty()


def test_a_signed_entry_under_another_key_is_a_miss(shared: Shared) -> None:
    other = commit(shared.source, {"a": 2}, {"lib.so": b"other"})
    open_cache(shared.source, shared.transport).push([other])
    shared.transport.held[entry_name(shared.key)] = shared.transport.held[entry_name(other.key)]
    assert shared.fetch() is None
    assert shared.is_empty()


def test_a_signed_entry_that_leaves_its_folder_is_a_miss(shared: Shared) -> None:
    value = encode_entry(shared.entry)
    value["outputs"] = {"../../x": value["outputs"]["lib.so"]}
    shared.transport.held[entry_name(shared.key)] = SECRET.seal(value)
    assert shared.fetch() is None


def test_a_tampered_entry_is_a_miss(shared: Shared) -> None:
    value = json.loads(shared.transport.held[entry_name(shared.key)])
    value["entry"]["outputs"]["lib.so"] = value["entry"]["outputs"]["empty"]
    shared.transport.held[entry_name(shared.key)] = canonical(value)
    assert shared.fetch() is None
    assert shared.is_empty()


@pytest.mark.parametrize("damage", ["flip", "truncate", "extend", "remove", "other"])
@pytest.mark.parametrize("name", ["lib.so", "weights/model.safetensors"])
def test_a_damaged_blob_is_a_miss_and_is_sent_anew(shared: Shared, damage: str, name: str) -> None:
    held, blob = shared.transport.held, shared.blob(name)
    good = held[blob]
    if damage == "remove":
        del held[blob]
    else:
        held[blob] = {"flip": good[:-1] + b"\0", "truncate": good[:-9], "extend": good + b"x", "other": good[::-1]}[damage]
    cache = open_cache(shared.store, shared.transport, told=shared.told)
    assert (cache.fetch(shared.key) is None) == (damage != "extend")  # of a longer blob the first bytes are read
    if damage != "extend":
        assert shared.is_empty()
        assert "is not taken from it" in shared.told[0]
        assert not list(shared.store.root.glob(f"blobs/*/{blob.rpartition('/')[2]}"))
        again = commit(shared.store, {"a": 1}, FILES)
        assert cache.push([again]).entries == 1
        assert held[blob] == good


def test_a_blob_that_is_damaged_on_its_way_only_once_is_not_lost(shared: Shared) -> None:
    faults = iter(["", "truncate"])
    assert shared.fetch(lambda *_: next(faults, "")) == shared.entry


@pytest.mark.parametrize("fault", ["hang", "error", "denied"])
@pytest.mark.parametrize("where", ["actions", "blobs"])
def test_a_failing_remote_is_off_within_its_time(shared: Shared, fault: str, where: str) -> None:
    started = time.monotonic()
    assert shared.fetch(lambda _, name: fault if name.startswith(where) else "") is None
    assert time.monotonic() - started < 3 * SECONDS + 1
    assert len(shared.told) == 1
    assert shared.is_empty()


def test_a_dead_remote_is_asked_once_a_command(shared: Shared) -> None:
    cache = open_cache(shared.store, FaultyTransport(shared.transport, lambda *_: "denied"), told=shared.told)
    assert [cache.fetch(f"{number:064}") for number in range(50)] == [None] * 50
    assert cache.push([shared.entry]) == Moved()
    assert len(shared.told) == 1


def test_a_download_goes_on_where_it_broke_off(shared: Shared) -> None:
    large = shared.blob("weights/model.safetensors")
    assert (
        open_cache(shared.store, BrokenOff(shared.transport, large, 2 * FIRST_RANGE), told=shared.told).fetch(shared.key)
        is None
    )
    partial = shared.store.partial_path(large.rpartition("/")[2])
    kept = partial.stat().st_size
    assert kept >= FIRST_RANGE
    shared.transport.asked.clear()
    assert shared.fetch() == shared.entry
    starts = [start for operation, name, start in shared.transport.asked if name == large and operation == "read"]
    assert min(starts) == kept
    assert not partial.exists()


def test_a_wrong_start_is_thrown_away(shared: Shared) -> None:
    for name in ("lib.so", "weights/model.safetensors"):
        partial = shared.store.partial_path(shared.entry.outputs[name].sha256)
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(b"no part of it" * 50)
    assert shared.fetch() == shared.entry


def test_gc_drops_what_broke_off(shared: Shared) -> None:
    partial = shared.store.partial_path("0" * 64)
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"x")
    assert collect.measure(shared.store).temporary == 1
    collect.collect(shared.store, 10**9)
    assert not partial.exists()


@pytest.mark.parametrize("fault", ["hang", "error", "denied", "truncate"])
def test_a_failing_push_leaves_no_entry_without_its_blobs(shared: Shared, fault: str) -> None:
    transport = MemoryTransport()
    faulty = FaultyTransport(transport, lambda operation, name: fault if operation == "put" and name == shared.blob() else "")
    moved = open_cache(shared.source, faulty, told=shared.told).push([shared.entry])
    assert moved.entries == 0
    assert not any(name.startswith("actions/") for name in transport.held)
    assert len(shared.told) == 1


def test_an_entry_that_is_there_stays_as_it_is(shared: Shared) -> None:
    before = dict(shared.transport.held)
    other = commit(shared.store, {"a": 1}, {"lib.so": b"another result of the same key"})
    assert open_cache(shared.store, shared.transport).push([other]).entries == 0
    assert shared.transport.held == before


def test_an_entry_of_a_stranger_is_replaced(shared: Shared) -> None:
    writer = read_trust((), {"MODELBUILD_SIGNING_KEY": bytes(32).hex()})
    assert open_cache(shared.source, shared.transport, writer).push([shared.entry]).entries == 1
    assert shared.fetch(trust=SECRET) is None


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from remote_faults import FaultyTransport, open_cache
from pydoit.remote.filesystem import FilesystemTransport
from pydoit.store import Store

reads = []
def fault(operation, name):
    if name.startswith("blobs/"):
        reads.append(name)
        if len(reads) == {reads}:
            print("ready", flush=True)
            time.sleep(60)
    return ""

open_cache(Store(Path(sys.argv[1])), FaultyTransport(FilesystemTransport(sys.argv[2], 60.0), fault)).fetch(sys.argv[3])
"""


@pytest.mark.parametrize("reads", [1, 3, 5])
def test_a_reader_killed_midway_leaves_nothing_wrong(shared: Shared, tmp_path: Path, reads: int) -> None:
    url = f"file://{tmp_path}/remote"
    from pydoit.remote.filesystem import FilesystemTransport

    transport = FilesystemTransport(url, 5.0)
    open_cache(shared.source, transport).push([shared.entry])
    code = KILLED.format(tests=str(Path(__file__).parents[1]), reads=reads)
    process = subprocess.Popen([sys.executable, "-c", code, str(shared.store.root), url, shared.key], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert shared.is_empty()
    assert open_cache(shared.store, transport).fetch(shared.key) == shared.entry
    assert shared.store.lookup(shared.key) == shared.entry


def test_a_folder_as_remote_holds_whole_files_only(shared: Shared, tmp_path: Path) -> None:
    from pydoit.remote.filesystem import FilesystemTransport

    transport = FilesystemTransport(f"file://{tmp_path}/a folder", 5.0)
    assert open_cache(shared.source, transport).push([shared.entry]).entries == 1
    names = sorted(
        path.relative_to(tmp_path / "a folder").as_posix() for path in (tmp_path / "a folder").rglob("*") if path.is_file()
    )
    assert names == sorted(shared.transport.held)
    assert all((tmp_path / "a folder" / name).read_bytes() == data for name, data in shared.transport.held.items())
