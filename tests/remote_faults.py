"""Remotes for tests: one in memory, one that fails as told, and a proxy that spoils what a real server sends."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pydoit.keys import digest_of
from pydoit.remote import RemoteCache
from pydoit.remote.requests import Requests
from pydoit.remote.signing import Trust
from pydoit.remote.transport import Moved, Transport
from pydoit.store import Entry, Store

SECRET = Trust(secret=b"a secret of the tests")
SECONDS = 0.5


class MemoryTransport:
    """Byte strings by name, with a list of what was asked."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.asked: list[tuple[str, str, int]] = []

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        self.asked.append(("read", name, start))
        if name not in self.held:
            raise FileNotFoundError(name)
        return self.held[name][start:end]

    def size(self, name: str) -> int | None:
        self.asked.append(("size", name, 0))
        return len(self.held[name]) if name in self.held else None

    def put(self, name: str, source: Path | bytes, moved: Moved) -> None:
        self.asked.append(("put", name, 0))
        self.held[name] = source if isinstance(source, bytes) else source.read_bytes()
        moved(len(self.held[name]))

    def names(self, operation: str) -> list[str]:
        return [name for asked, name, _ in self.asked if asked == operation]


class FaultyTransport:
    """Does to each request what `fault(operation, name)` says: "" for nothing."""

    def __init__(self, inner: Transport, fault: Callable[[str, str], str]) -> None:
        self.inner = inner
        self.fault = fault

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        fault = self._meet("read", name)
        data = self.inner.read(name, start, end)
        if fault == "truncate":
            return data[: len(data) // 2]
        return bytes([data[0] ^ 1, *data[1:]]) if fault == "tamper" and data else data

    def size(self, name: str) -> int | None:
        self._meet("size", name)
        return self.inner.size(name)

    def put(self, name: str, source: Path | bytes, moved: Moved) -> None:
        if self._meet("put", name) == "truncate":
            raise ConnectionResetError("broken off")
        self.inner.put(name, source, moved)

    def _meet(self, operation: str, name: str) -> str:
        fault = self.fault(operation, name)
        if fault == "hang":
            time.sleep(3 * SECONDS)
        if fault == "error":
            raise OSError("500 Internal Server Error")
        if fault == "denied":
            raise PermissionError("403 Forbidden")
        return fault


def open_cache(
    store: Store, transport: Transport, trust: Trust = SECRET, told: list[str] | None = None, seconds: float = SECONDS
) -> RemoteCache:
    """A remote cache with short deadlines over a transport of the test."""
    tell = told.append if told is not None else lambda _: None
    return RemoteCache(store, lambda: transport, Requests("test://", seconds, tell), lambda: trust, writes=True)


def commit(store: Store, document: dict[str, Any], files: dict[str, bytes], stage: str = "compile") -> Entry:
    """Put an entry with these files into the store."""
    with store.scratch() as folder:
        out = folder / "out"
        out.mkdir()
        for name, data in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(data)
        return store.commit(digest_of(document), stage, document, out, {"cosine": 0.5}, 2.0)


class FaultProxy:
    """An HTTP server before a real one. A seeded share of the answers is late, an error, cut short, or has a bit flipped."""

    def __init__(self, port: int) -> None:
        self.upstream = port
        self.random = random.Random(0)
        self.rates: dict[str, float] = {}
        self.dies_at = -1
        self._count = 0
        self._guard = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with contextlib.suppress(ConnectionError, TimeoutError):
                    super().handle_one_request()

            def forward(self) -> None:
                proxy.serve(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def play(self, seed: int, rates: dict[str, float], dies_at: int = -1) -> None:
        """Start a schedule anew; from the request `dies_at` on every connection is closed without an answer."""
        with self._guard:
            self.random, self.rates, self.dies_at, self._count = random.Random(seed), rates, dies_at, 0

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _fault(self) -> tuple[str, float]:
        with self._guard:
            self._count += 1
            if 0 <= self.dies_at < self._count:
                return "die", 0.0
            draw, place = self.random.random(), self.random.random()
            for fault, rate in self.rates.items():
                if draw < rate:
                    return fault, place
                draw -= rate
            return "", place

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        fault, place = self._fault()
        if fault == "hang":
            time.sleep(3 * SECONDS)
        if fault in ("die", "hang"):
            handler.close_connection = True
            with contextlib.suppress(OSError):
                handler.connection.shutdown(socket.SHUT_RDWR)
            return
        status, headers, data = (500, {}, b"") if fault == "error" else self._ask(handler, body)
        length = headers.get("content-length", str(len(data))) if handler.command == "HEAD" else str(len(data))
        if fault == "tamper" and data:
            position = int(place * len(data))
            data = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        handler.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                handler.send_header(name, value)
        handler.send_header("Content-Length", length)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data[: int(place * len(data))] if fault == "truncate" else data)
        handler.close_connection = handler.close_connection or fault == "truncate"

    def _ask(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=30)
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in ("connection", "expect")}
        connection.request(handler.command, handler.path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, data
