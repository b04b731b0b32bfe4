"""A remote on any file system that fsspec knows: file, S3 and compatible, Google Cloud Storage, Azure, HTTP."""

from __future__ import annotations

import contextlib
import io
import uuid
from pathlib import Path
from typing import Any, BinaryIO

from pydoit.remote.transport import Moved, RemoteError

BLOCK_BYTES = 8 * 2**20
"""Bytes of one part of an upload; S3 takes no parts below 5 MiB."""
CONNECT_SECONDS = 2.0
EXTRAS = {"s3": "remote", "http": "remote", "https": "remote", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure"}


class FilesystemTransport:
    """`url` is protocol://place/prefix. Credentials come from the environment or the provider's own chain, never from it."""

    def __init__(self, url: str, seconds: float) -> None:
        protocol = url.partition("://")[0]
        try:
            import fsspec

            self._fs = fsspec.filesystem(protocol, skip_instance_cache=True, **_options(protocol, seconds))
        except ImportError as error:
            extra = EXTRAS.get(protocol, "remote")
            raise RemoteError(f"{error}; run `pip install 'doit-modelbuild[{extra}]'`") from None
        if protocol == "s3":
            self._fs.retries = 1  # we try again ourselves, within our deadline
        self._is_local = protocol == "file"
        self._root = str(self._fs._strip_protocol(url)).rstrip("/")  # noqa: SLF001 - fsspec's name for it, used by its own users

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        part = {} if end is None else {"start": start, "end": end}
        try:
            data = bytes(self._fs.cat_file(f"{self._root}/{name}", **part))
        except Exception as error:
            if _is_beyond_the_end(error):
                return b""
            raise
        if end is not None and len(data) > end - start:  # an HTTP server that knows no ranges sends all of it
            return data[start:end]
        return data

    def size(self, name: str) -> int | None:
        try:
            found = self._fs.info(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return int(found["size"])

    def put(self, name: str, source: Path | bytes, moved: Moved) -> None:
        target = f"{self._root}/{name}"
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
            if self._is_local:
                temporary = f"{target.rpartition('/')[0]}/.{uuid.uuid4().hex}.tmp"
                try:
                    self._write(temporary, file, moved)
                    self._fs.mv(temporary, target)
                finally:
                    Path(temporary).unlink(missing_ok=True)
            else:
                self._write(target, file, moved)

    def _write(self, path: str, source: BinaryIO, moved: Moved) -> None:
        target = self._fs.open(path, "wb", block_size=BLOCK_BYTES)
        try:
            while block := source.read(BLOCK_BYTES):
                target.write(block)
                moved(len(block))
            target.close()
        except BaseException:
            # Closing it would publish the part that was written, and so would its end of life.
            with contextlib.suppress(Exception):
                target.discard()
            with contextlib.suppress(AttributeError):
                target.closed = True
            raise


def _is_beyond_the_end(error: BaseException) -> bool:
    """Whether a range was refused because the object ends before it."""
    texts = (str(error), str(error.__cause__))
    return getattr(error, "status", None) == 416 or any("InvalidRange" in text or "satisfiable" in text for text in texts)


def _options(protocol: str, seconds: float) -> dict[str, Any]:
    """Time-outs of the provider's library, so that a thread that was left behind ends soon; no retries of its own."""
    connect = min(CONNECT_SECONDS, seconds)
    if protocol == "file":
        return {"auto_mkdir": True}
    if protocol == "s3":
        return {
            "use_listings_cache": False,
            "max_concurrency": 1,  # with more it asks for the size before it reads
            "config_kwargs": {
                "connect_timeout": connect,
                "read_timeout": seconds,
                "retries": {"total_max_attempts": 1},
                # Servers that only speak S3 do not all know newer checksums; ours are stronger.
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
        }
    if protocol in ("http", "https"):
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=seconds)
        return {"client_kwargs": {"timeout": timeout, "trust_env": True}}
    if protocol in ("gs", "gcs"):
        return {"requests_timeout": seconds}
    return {"connection_timeout": connect, "read_timeout": seconds, "anon": False}
