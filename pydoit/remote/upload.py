"""Sends entries to the remote: only what it lacks, blobs before the entry that names them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pydoit.remote.requests import Requests
from pydoit.remote.signing import Trust
from pydoit.remote.transport import RemoteError, Transport
from pydoit.store import Blob, Entry, Store, blob_name, encode_entry, entry_name

ENTRIES_AT_ONCE = 4


class Uploads:
    """One push; counts what was moved. An entry that the remote has whole, from a trusted writer, stays as it is."""

    def __init__(self, store: Store, transport: Transport, requests: Requests, damaged: Collection[str]) -> None:
        self.entries = self.blobs = self.bytes = 0
        self._store = store
        self._transport = transport
        self._requests = requests
        self._damaged = damaged
        self._sent: dict[str, Future[None]] = {}
        self._guard = threading.Lock()

    def send(self, entries: Collection[Entry], theirs: Callable[[str], Entry | None], trust: Trust) -> None:
        """Send `entries`; `theirs` reads what the remote holds under a key. Ends early once the remote is off."""
        with ThreadPoolExecutor(ENTRIES_AT_ONCE) as pool:
            waiting = [pool.submit(self._send_entry, entry, theirs, trust) for entry in entries]
            for future in waiting:
                try:
                    future.result()
                except RemoteError as error:
                    self._requests.switch_off(str(error))
                except OSError as error:  # no such bucket, or a blob that was just removed here
                    self._requests.switch_off(f"cannot be written: {error}")

    def send_blobs(self, sources: Mapping[Blob, Path]) -> None:
        """Send files that the remote lacks, under their digests. Raises RemoteError."""
        with ThreadPoolExecutor(ENTRIES_AT_ONCE) as pool:
            for _ in pool.map(lambda item: self._send_unless_there(*item), sources.items()):
                pass

    def _send_unless_there(self, blob: Blob, path: Path) -> None:
        try:
            if not self._is_there(blob):
                self._send_blob(blob, path)
        except OSError as error:
            raise RemoteError(f"cannot be written: {error}") from error

    def _send_entry(self, entry: Entry, theirs: Callable[[str], Entry | None], trust: Trust) -> None:
        held = theirs(entry.key)
        if held is not None and all(map(self._is_there, held.outputs.values())):
            return
        for blob in entry.outputs.values():
            self._send_blob_once(blob)
        data = trust.seal(encode_entry(entry))
        self._requests.run(lambda moved: self._transport.put(entry_name(entry.key), data, moved), len(data))
        with self._guard:
            self.entries += 1
            self.bytes += len(data)

    def _send_blob_once(self, blob: Blob) -> None:
        """Entries may share a blob: the first sends it, the others wait for that."""
        with self._guard:
            known = self._sent.get(blob.sha256)
            mine = self._sent.setdefault(blob.sha256, Future())
        if known is not None:
            known.result()
            return
        try:
            if not self._is_there(blob):
                self._send_blob(blob, self._store.blob_path(blob.sha256))
        except BaseException as error:
            mine.set_exception(error)
            raise
        mine.set_result(None)

    def _send_blob(self, blob: Blob, path: Path) -> None:
        self._requests.run(lambda moved: self._transport.put(blob_name(blob.sha256), path, moved), blob.bytes)
        with self._guard:
            self.blobs += 1
            self.bytes += blob.bytes

    def _is_there(self, blob: Blob) -> bool:
        if blob.sha256 in self._damaged:
            return False
        return self._requests.run(lambda _: self._transport.size(blob_name(blob.sha256))) == blob.bytes
