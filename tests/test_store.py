"""The store: commits, damage, sharing, kill -9, sweeping and garbage collection."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pydoit import collect
from pydoit.digest import StatCache, hash_bytes
from pydoit.errors import StoreError
from pydoit.keys import digest_of
from pydoit.locks import locked
from pydoit.store import Entry, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def commit(store: Store, document: dict[str, object], files: dict[str, bytes]) -> Entry:
    with store.scratch() as folder:
        out = folder / "out"
        out.mkdir()
        for name, data in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(data)
        return store.commit(digest_of(document), "compile", document, out, {"seconds": 1.5}, 2.0)


def test_an_entry_comes_back_whole(store: Store, tmp_path: Path) -> None:
    entry = commit(store, {"a": 1}, {"lib.so": b"code", "sub/x": b""})
    found = store.lookup(entry.key)
    assert found == entry
    assert found.measurements == {"seconds": 1.5}
    store.restore(found, "sub/x", tmp_path / "copy/x")
    assert (tmp_path / "copy/x").read_bytes() == b""
    assert not list(store.root.glob("tmp/*"))


def test_the_output_digest_leaves_measurements_out(store: Store) -> None:
    one = commit(store, {"a": 1}, {"x": b"1"})
    two = commit(store, {"a": 2}, {"x": b"1"})
    assert one.key != two.key
    assert one.output_digest == two.output_digest


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_damaged_blob_is_a_miss_and_is_removed(store: Store, damage: str) -> None:
    entry = commit(store, {"a": 1}, {"lib.so": b"code" * 100})
    blob = store.blob_path(entry.outputs["lib.so"].sha256)
    blob.chmod(0o644)
    data = blob.read_bytes()
    if damage == "remove":
        blob.unlink()
    else:
        blob.write_bytes(data[:7] if damage == "truncate" else b"x" + data[1:])
    assert store.lookup(entry.key) is None
    assert not blob.exists()
    assert commit(store, {"a": 1}, {"lib.so": b"code" * 100}) == entry
    assert store.lookup(entry.key) == entry


def test_damage_behind_an_unchanged_stat_is_seen_on_the_way_out(store: Store, tmp_path: Path) -> None:
    entry = commit(store, {"a": 1}, {"lib.so": b"code"})
    sha256 = entry.outputs["lib.so"].sha256
    blob = store.blob_path(sha256)
    blob.chmod(0o644)
    blob.write_bytes(b"edoc")
    store.stats.trust(blob, sha256)
    assert store.lookup(entry.key) is not None
    with pytest.raises(StoreError, match="damaged"):
        store.restore(entry, "lib.so", tmp_path / "lib.so")
    assert not (tmp_path / "lib.so").exists()
    assert store.lookup(entry.key) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 1}', '{"schema": 99}'])
def test_a_malformed_entry_is_a_miss(store: Store, text: str) -> None:
    entry = commit(store, {"a": 1}, {"x": b"1"})
    store.entry_path(entry.key).write_text(text)
    assert store.lookup(entry.key) is None


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", ""])
def test_an_entry_that_leaves_its_folder_is_a_miss(store: Store, name: str) -> None:
    entry = commit(store, {"a": 1}, {"x": b"1"})
    path = store.entry_path(entry.key)
    value = json.loads(path.read_bytes())
    value["outputs"] = {name: value["outputs"]["x"]}
    path.write_text(json.dumps(value))
    assert store.lookup(entry.key) is None


def test_an_entry_under_another_key_is_a_miss(store: Store) -> None:
    one, two = commit(store, {"a": 1}, {"x": b"1"}), commit(store, {"a": 2}, {"x": b"2"})
    os.replace(store.entry_path(one.key), store.entry_path(two.key))
    assert store.lookup(two.key) is None


def test_a_full_disk_is_a_clear_error_and_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="disk is full"):
        commit(store, {"a": 1}, {"x": b"1"})
    monkeypatch.undo()
    assert store.lookup(digest_of({"a": 1})) is None
    assert not list(store.root.glob("tmp/*"))


def test_a_file_in_the_stores_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    with pytest.raises(StoreError), Store(tmp_path / "store").in_use():
        pass


def test_outputs_that_cannot_be_listed_are_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """rglob and os.walk leave out what they may not read; an output without its files would be taken for whole."""

    def refused(path: object = ".") -> object:
        if "sub" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    real = os.scandir
    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(StoreError, match="Permission denied"):
        commit(store, {"a": 1}, {"lib.so": b"code", "sub/x": b"1"})
    monkeypatch.undo()
    assert store.lookup(digest_of({"a": 1})) is None


KILLED = """
import os, signal, sys
from pathlib import Path
from pydoit.store import Store
store = Store(Path(sys.argv[1]))
with store.scratch() as folder:
    (folder / "big").write_bytes(b"x" * 1000)
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_swept_and_what_a_live_one_holds_is_not(store: Store) -> None:
    process = subprocess.run([sys.executable, "-c", KILLED, str(store.root)], capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL
    with store.scratch() as alive:
        assert len(list(store.root.glob("tmp/*"))) == 2
        assert store.sweep() == 1
        assert alive.exists()


def test_a_lock_is_free_when_its_holder_is_killed(tmp_path: Path) -> None:
    text = "import sys,time\nfrom pathlib import Path\nfrom pydoit.locks import locked\n"
    text += "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
    process = subprocess.Popen([sys.executable, "-c", text, str(tmp_path / "x.lock")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    waits: list[float] = []
    timer = threading.Timer(0.3, process.kill)
    timer.start()
    with locked(tmp_path / "x.lock", waiting=waits.append):
        pass
    assert waits
    process.wait()
    process.stdout.close()


def test_gc_keeps_the_most_recently_used(store: Store) -> None:
    entries = [commit(store, {"n": number}, {"x": bytes([number]) * 1000}) for number in range(5)]
    for age, entry in enumerate(entries):
        os.utime(store.entry_path(entry.key), (time.time() - 1000 + age, time.time() - 1000 + age))
    store.touch(entries[0].key)
    collected = collect.collect(store, 2500)
    assert (collected.entries_removed, collected.bytes_kept) == (3, 2000)
    assert [store.lookup(entry.key) is not None for entry in entries] == [True, False, False, False, True]


def test_gc_keeps_a_blob_that_two_entries_share(store: Store) -> None:
    old, new = commit(store, {"n": 1}, {"x": b"same"}), commit(store, {"n": 2}, {"x": b"same"})
    os.utime(store.entry_path(old.key), (1, 1))
    collect.collect(store, 10**9, max_age_days=1)
    assert store.lookup(old.key) is None
    assert store.lookup(new.key) is not None


def test_gc_waits_for_a_running_build(store: Store) -> None:
    commit(store, {"n": 1}, {"x": b"1"})
    done = threading.Event()

    def run() -> None:
        collect.collect(store, 0)
        done.set()

    with store.in_use():
        thread = threading.Thread(target=run)
        thread.start()
        assert not done.wait(0.3)
    assert done.wait(5)
    thread.join()


def test_verify_finds_flipped_bits(store: Store) -> None:
    entry = commit(store, {"n": 1}, {"x": b"12345"})
    sha256 = entry.outputs["x"].sha256
    blob = store.blob_path(sha256)
    blob.chmod(0o644)
    blob.write_bytes(b"1234X")
    store.stats.trust(blob, sha256)
    assert collect.verify(store) == [sha256]
    assert store.lookup(entry.key) is None
    assert collect.verify(store) == []


def test_stats_count(store: Store) -> None:
    commit(store, {"n": 1}, {"x": b"12345", "y": b"1"})
    assert collect.measure(store) == collect.Stats(entries=1, blobs=2, bytes=6, temporary=0)


def test_the_stat_cache_sees_every_change(tmp_path: Path) -> None:
    stats, path = StatCache(tmp_path / "stat.db"), tmp_path / "file"
    for data in (b"one", b"two", b"two", b"three"):
        path.write_bytes(data)
        assert stats.digest(path) == hash_bytes(data)


def test_the_stat_cache_answers_without_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"weights")
    os.utime(path, (1000, 1000))
    expected = StatCache(tmp_path / "stat.db").digest(path)
    monkeypatch.setattr("pydoit.digest.hash_file", lambda _: pytest.fail("the file was read again"))
    assert StatCache(tmp_path / "stat.db").digest(path) == expected


def test_a_broken_stat_database_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "stat.db").write_bytes(b"not a database" * 100)
    path = tmp_path / "file"
    path.write_bytes(b"x")
    assert StatCache(tmp_path / "stat.db").digest(path) == hash_bytes(b"x")
