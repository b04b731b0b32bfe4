"""The remote cache: action entries and blobs that machines share, behind the local store; off unless it is configured.

Nothing here may fail a build or hold it up for more than a few seconds: what cannot be read, is not signed by a trusted
key or does not have its digest is a miss, and a remote that fails or dawdles is off for the rest of the command.
"""

from __future__ import annotations

from collections.abc import Callable

from pydoit.remote.cache import Moved, RemoteCache
from pydoit.remote.requests import Requests
from pydoit.remote.signing import read_trust
from pydoit.remote.transport import Transport
from pydoit.settings import RemoteSettings
from pydoit.store import Store

__all__ = ["Moved", "RemoteCache", "open_remote"]


def open_remote(
    settings: RemoteSettings, store: Store, tell: Callable[[str], None], patience: float = 1.0, *, needs_keys: bool = True
) -> RemoteCache:
    """The remote of a workspace; nothing is asked of it before the first miss.

    `tell` shows a line to the user; `patience` multiplies the seconds that a request may take. Without keys (`needs_keys`
    false) no entry is ever taken from it; blobs, whose digest is known from elsewhere, still come and go.
    """

    def connect() -> Transport:
        from pydoit.remote.filesystem import FilesystemTransport

        return FilesystemTransport(settings.url, settings.timeout_seconds)

    requests = Requests(settings.url, settings.timeout_seconds * patience, tell)
    return RemoteCache(
        store, connect, requests, lambda: read_trust(settings.trusted_keys), writes=settings.writes, needs_keys=needs_keys
    )
