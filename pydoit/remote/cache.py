"""The remote behind the store: entries are looked up, fetched whole with their blobs, and pushed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydoit.remote.download import Downloads
from pydoit.remote.requests import Requests
from pydoit.remote.signing import Trust
from pydoit.remote.transport import DamagedError, RemoteError, Transport
from pydoit.remote.upload import Uploads
from pydoit.store import Blob, Entry, Store, decode_entry, entry_name


@dataclass(frozen=True)
class Moved:
    """What came or went."""

    entries: int = 0
    blobs: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return f"{self.entries} entries, {self.blobs} blobs, {self.bytes / 1e6:.1f} MB"


class RemoteCache:
    """What one command asks of the remote. No method raises for a fault of the remote: it is a miss, or nothing moved."""

    def __init__(self, store: Store, connect: Callable[[], Transport], requests: Requests, trust: Callable[[], Trust],
                 *, writes: bool, needs_keys: bool = True) -> None:  # fmt: skip
        self.writes = writes
        self._needs_keys = needs_keys
        self.requests = requests
        self.fetched = Moved()
        self._store = store
        self._connect = connect
        self._read_trust = trust
        self._opened: tuple[Transport, Trust] | None = None
        self._guard = threading.Lock()
        self._entries: dict[str, Entry | None] = {}
        self._damaged: set[str] = set()

    def peek(self, key: str) -> Entry | None:
        """The remote's entry of `key`, trusted but without its blobs."""
        if key not in self._entries and not self.requests.is_off:
            try:
                self._entries[key] = self._read_entry(key)
            except RemoteError:
                return None
        return self._entries.get(key)

    def fetch(self, key: str) -> Entry | None:
        """Bring the entry of `key` into the store: its blobs, checked, then the entry. None when that cannot be done."""
        entry = self.peek(key)
        if entry is None:
            return None
        self._entries[key] = None
        try:
            downloads = Downloads(self._store, self._open()[0], self.requests)
            downloads.bring(entry.outputs.values())
        except DamagedError as error:
            self._damaged.update(blob.sha256 for blob in entry.outputs.values())
            self.requests.tell(f"remote cache: {entry.stage} is not taken from it: {error}")
            return None
        except RemoteError:
            return None
        self._store.write_entry(entry)
        with self._guard:
            moved = self.fetched
            self.fetched = Moved(moved.entries + 1, moved.blobs + downloads.blobs, moved.bytes + downloads.bytes)
        return entry

    def bring_blobs(self, blobs: Iterable[Blob]) -> None:
        """Bring blobs into the store that lacks them. Raises RemoteError: there is no other way to come by them."""
        Downloads(self._store, self._open()[0], self.requests).bring(blobs)

    def send_blobs(self, sources: Mapping[Blob, Path]) -> None:
        """Send those of the files that the remote lacks. Raises RemoteError."""
        Uploads(self._store, self._open()[0], self.requests, self._damaged).send_blobs(sources)

    def push(self, entries: Iterable[Entry]) -> Moved:
        """Send what the remote lacks of `entries`: blobs first, then the entries that name them."""
        unique = list({entry.key: entry for entry in entries}.values())
        if not unique:
            return Moved()
        try:
            transport, trust = self._open()
            if not trust.can_sign:
                raise RemoteError("nothing can be signed; set MODELBUILD_SIGNING_KEY or MODELBUILD_CACHE_SECRET")
        except RemoteError as error:
            self.requests.switch_off(str(error))
            return Moved()
        uploads = Uploads(self._store, transport, self.requests, self._damaged)
        uploads.send(unique, self._read_entry, trust)
        return Moved(uploads.entries, uploads.blobs, uploads.bytes)

    def _read_entry(self, key: str) -> Entry | None:
        transport, trust = self._open()
        try:
            data = self.requests.run(lambda _: transport.read(entry_name(key)))
        except FileNotFoundError:
            return None
        value = trust.unseal(data)
        if value is None:
            return None
        try:
            return decode_entry(key, value)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def _open(self) -> tuple[Transport, Trust]:
        with self._guard:
            if self._opened is None:
                self._opened = self._try_to_open()
            return self._opened

    def _try_to_open(self) -> tuple[Transport, Trust]:
        """The transport and the keys; a fault of either switches the remote off."""
        try:
            trust = self._read_trust()
            if self._needs_keys and not trust.can_read:
                raise RemoteError("no key is trusted; set trusted_keys under [cache], or MODELBUILD_CACHE_SECRET")
            return self._connect(), trust
        except Exception as error:
            self.requests.switch_off(str(error))
            raise RemoteError(str(error)) from error
