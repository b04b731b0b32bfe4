"""What TVM's RPC tracker is asked: which servers it has, and one of them; over our own sockets, which never wait for ever."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydoit.errors import UserError

MAGIC = 0x2F271
REQUEST, SUMMARY, SUCCESS = 4, 6, 0
"""Codes of the tracker's protocol (tvm/rpc/base.py): a frame is its length as a little-endian int32, then JSON."""
MAX_FRAME = 1 << 20
ANSWER_SECONDS = 5.0
"""A tracker that is silent for longer is taken for dead."""
LOST_SECONDS = 10.0
"""How long a key may have no server before a search gives up: one that was restarted is back by then."""
BUSY_SECONDS = 300.0
"""How long all servers of a key may serve others."""
LOOK_SECONDS = 1.0


class TrackerError(Exception):
    """The tracker or its servers cannot be used; the text says what is wrong, without the tracker's address."""


@dataclass(frozen=True)
class Device:
    """The machines behind a tracker that have one key; each of them will do."""

    tracker: str
    """host:port."""
    key: str
    """Name under which the servers are registered, by convention the arch that they run."""

    def __str__(self) -> str:
        return f"{self.key} of the tracker {self.tracker}"


def require_server(device: Device) -> None:
    """Raise `UserError` unless the tracker answers and has a server with the key."""
    try:
        keys = server_keys(device.tracker)
    except TrackerError as error:
        raise UserError(
            f"the tracker {device.tracker} {error}; start it with `python -m tvm.exec.rpc_tracker`, or mend [executor] tracker"
        ) from None
    if device.key not in keys:
        known = f"it has {', '.join(sorted(set(keys)))}" if keys else "it has none at all"
        raise UserError(
            f"the tracker {device.tracker} has no server with the key {device.key!r}; {known}: set [executor] tracker_key, or "
            f"start `python -m tvm.exec.rpc_server --tracker {device.tracker} --key {device.key}` on the device"
        )


def server_keys(address: str) -> list[str]:
    """The key of each registered server, also of those that are busy. Raises TrackerError."""
    with _connected(address) as connection:
        _send(connection, [SUMMARY])
        answer = _receive(connection)
    try:
        return [str(item["key"]).partition(":")[2] for item in answer[1]["server_info"]]
    except (TypeError, KeyError, IndexError):
        raise TrackerError("answers in another form; it is of another version of TVM") from None


def take_server(device: Device) -> tuple[str, int, str]:
    """Host, port and match key of a free server, which is ours for the next connection to it.

    Waits while all are busy, up to BUSY_SECONDS, and while there is none, up to LOST_SECONDS. Raises TrackerError.
    """
    with _connected(device.tracker) as connection:
        _send(connection, [REQUEST, device.key, "", 1])
        started = there = time.monotonic()
        while not select.select([connection], [], [], LOOK_SECONDS)[0]:
            now = time.monotonic()
            if device.key in server_keys(device.tracker):
                there = now
            if now - there > LOST_SECONDS:
                raise TrackerError(f"has had no server with the key {device.key!r} for {LOST_SECONDS:.0f} s")
            if now - started > BUSY_SECONDS:
                raise TrackerError(f"has given no server with the key {device.key!r} for {BUSY_SECONDS:.0f} s: all are busy")
        answer = _receive(connection)
    try:
        host, port, match = answer[1]
        return str(host), int(port), str(match)
    except (TypeError, ValueError, IndexError):
        raise TrackerError("answers in another form; it is of another version of TVM") from None


@contextmanager
def _connected(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), ANSWER_SECONDS) as connection:
            connection.sendall(struct.pack("<i", MAGIC))
            if struct.unpack("<i", _read(connection, 4))[0] != MAGIC:
                raise TrackerError("is none: something else listens there")
            yield connection
    except TimeoutError:
        raise TrackerError(f"has not answered for {ANSWER_SECONDS:.0f} s") from None
    except OSError as error:
        raise TrackerError(f"cannot be reached ({error.strerror or error})") from None


def _send(connection: socket.socket, value: Any) -> None:
    data = json.dumps(value).encode()
    connection.sendall(struct.pack("<i", len(data)) + data)


def _receive(connection: socket.socket) -> Any:
    (size,) = struct.unpack("<i", _read(connection, 4))
    if not 0 < size <= MAX_FRAME:
        raise TrackerError("is none: something else listens there")
    try:
        answer = json.loads(_read(connection, size))
    except ValueError:
        raise TrackerError("is none: something else listens there") from None
    if not isinstance(answer, list) or not answer or answer[0] != SUCCESS:
        raise TrackerError("refused the request")
    return answer


def _read(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes; a tracker that sends them drop by drop is one that does not answer."""
    deadline, data = time.monotonic() + ANSWER_SECONDS, b""
    while len(data) < size:
        if time.monotonic() > deadline:
            raise TimeoutError
        received = connection.recv(size - len(data))
        if not received:
            raise TrackerError("closed the connection")
        data += received
    return data
