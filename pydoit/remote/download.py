"""Brings blobs into the store: ranges side by side, resumed where a download broke off, checked by digest."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pydoit.locks import locked
from pydoit.remote.requests import Requests
from pydoit.remote.transport import DamagedError, Transport
from pydoit.store import Blob, Store, blob_name, store_error

BLOBS_AT_ONCE = 4
REQUESTS_AT_ONCE = 8
AHEAD = 3
"""Ranges of one blob that are asked for before the first of them has come."""
FIRST_RANGE, LARGEST_RANGE = 2**20, 16 * 2**20
QUICK_SECONDS, LONG_SECONDS = 0.25, 1.0


class Downloads:
    """The blobs of one entry on their way; counts what was moved."""

    def __init__(self, store: Store, transport: Transport, requests: Requests) -> None:
        self.blobs = self.bytes = 0
        self._store = store
        self._transport = transport
        self._requests = requests
        self._failed = False

    def bring(self, blobs: Iterable[Blob]) -> None:
        """Bring those that the store lacks. Raises DamagedError or RemoteError; what came whole stays in the store."""
        missing = list({blob.sha256: blob for blob in blobs if not self._store.holds(blob)}.values())
        if not missing:
            return
        with ThreadPoolExecutor(BLOBS_AT_ONCE) as each, ThreadPoolExecutor(REQUESTS_AT_ONCE) as ranges:
            waiting = [each.submit(self._bring_one, blob, ranges) for blob in missing]
            try:
                for future in waiting:
                    moved = future.result()
                    self.blobs += moved is not None
                    self.bytes += moved or 0
            except OSError as error:
                raise store_error(error, self._store.root) from error
            finally:
                self._failed = True  # those still on their way may stop: either all are here, or one cannot come

    def _bring_one(self, blob: Blob, ranges: ThreadPoolExecutor) -> int | None:
        """Bytes that were moved; None where another process has brought the blob meanwhile."""
        partial = self._store.partial_path(blob.sha256)
        with locked(self._store.root / "locks" / f"{blob.sha256}.lock"):
            if self._store.holds(blob):
                return None
            start = _bytes_of(partial)
            start = start if start <= blob.bytes else 0
            self._stream(blob, partial, start, ranges)
            if not self._store.adopt(partial, blob):
                if not start:
                    raise DamagedError(f"blob {blob.sha256[:12]} has other bytes there than its digest says")
                self._stream(blob, partial, 0, ranges)  # what an earlier download had left may have been the fault
                if not self._store.adopt(partial, blob):
                    raise DamagedError(f"blob {blob.sha256[:12]} has other bytes there than its digest says")
        return blob.bytes - start

    def _stream(self, blob: Blob, partial: Path, start: int, ranges: ThreadPoolExecutor) -> None:
        """Append the blob's bytes from `start` on. Ranges grow while they come quickly, so that none takes long."""
        partial.parent.mkdir(parents=True, exist_ok=True)
        size, waiting = FIRST_RANGE, deque[Future[tuple[bytes, float]]]()
        if start == blob.bytes and partial.exists():
            return
        with partial.open("r+b" if start else "wb") as file:
            file.seek(start)
            try:
                while start < blob.bytes or waiting:
                    while start < blob.bytes and len(waiting) < AHEAD:
                        end = min(start + size, blob.bytes)
                        waiting.append(ranges.submit(self._read, blob, start, end))
                        start = end
                    data, seconds = waiting.popleft().result()
                    file.write(data)
                    size = _next_size(size, seconds)
            finally:
                for future in waiting:
                    future.cancel()

    def _read(self, blob: Blob, start: int, end: int) -> tuple[bytes, float]:
        name = blob_name(blob.sha256)
        for _ in range(2):
            if self._failed:
                raise DamagedError("another blob of the same entry could not be had")
            started = time.monotonic()
            try:
                data = self._requests.run(lambda _: self._transport.read(name, start, end), end - start)
            except FileNotFoundError:
                raise DamagedError(f"blob {blob.sha256[:12]} is not there") from None
            if len(data) == end - start:
                return data, time.monotonic() - started
        raise DamagedError(f"blob {blob.sha256[:12]} is shorter there than its entry says")


def _next_size(size: int, seconds: float) -> int:
    if seconds < QUICK_SECONDS:
        return min(size * 2, LARGEST_RANGE)
    return max(size // 2, FIRST_RANGE) if seconds > LONG_SECONDS else size


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
