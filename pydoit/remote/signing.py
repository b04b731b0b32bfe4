"""Signatures of action entries: whose entries a reader takes, and how a writer signs its own."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydoit.errors import UserError
from pydoit.keys import canonical
from pydoit.remote.transport import RemoteError

SCHEMA = 1
CONTEXT = b"doit-modelbuild action entry 1\n"
"""Signed before the entry, so that a signature made for something else is worth nothing here."""
MIN_SECRET_BYTES = 16
KEY_BYTES = 32

SIGNING_KEY, SIGNING_KEY_FILE, SECRET = "MODELBUILD_SIGNING_KEY", "MODELBUILD_SIGNING_KEY_FILE", "MODELBUILD_CACHE_SECRET"


@dataclass(frozen=True)
class Trust:
    """Keys of one command. An Ed25519 key signs for all who know its public key, a secret for those who share it."""

    public_keys: frozenset[bytes] = frozenset()
    secret: bytes | None = None
    signing_key: bytes | None = None

    @property
    def can_read(self) -> bool:
        return bool(self.public_keys) or self.secret is not None

    @property
    def can_sign(self) -> bool:
        return self.signing_key is not None or self.secret is not None

    def seal(self, entry: Mapping[str, Any]) -> bytes:
        """The entry with a signature over its canonical bytes, as it lies on the remote."""
        return canonical({"schema": SCHEMA, "entry": entry, "signature": self._sign(CONTEXT + canonical(entry))})

    def unseal(self, data: bytes) -> Any:
        """The entry, when a trusted key signed it; None for anything else, whatever it is."""
        try:
            value = json.loads(data)
            signed = CONTEXT + canonical(value["entry"])
            if value["schema"] == SCHEMA and self._is_trusted(value["signature"], signed):
                return value["entry"]
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # not an entry: a miss like one that a stranger signed
        return None

    def _sign(self, data: bytes) -> dict[str, str]:
        if self.signing_key is not None:
            key = _private_key(self.signing_key)
            return {
                "algorithm": "ed25519",
                "key": public_key(self.signing_key).hex(),
                "value": key.sign(data).hex(),
            }
        assert self.secret is not None
        return {"algorithm": "hmac-sha256", "value": hmac.digest(self.secret, data, "sha256").hex()}

    def _is_trusted(self, signature: Mapping[str, Any], data: bytes) -> bool:
        value = bytes.fromhex(signature["value"])
        if signature["algorithm"] == "hmac-sha256":
            return self.secret is not None and hmac.compare_digest(value, hmac.digest(self.secret, data, "sha256"))
        key = bytes.fromhex(signature["key"])
        return signature["algorithm"] == "ed25519" and key in self.public_keys and _verifies(key, value, data)


def read_trust(trusted_keys: Iterable[str], environment: Mapping[str, str] = os.environ) -> Trust:
    """The workspace's trusted keys with what the environment holds; `UserError` for a malformed key."""
    public = {parse_key(text, "trusted_keys") for text in trusted_keys}
    text = environment.get(SIGNING_KEY, "") or _key_file(environment.get(SIGNING_KEY_FILE, ""))
    signing = parse_key(text, SIGNING_KEY) if text else None
    secret = environment.get(SECRET, "").encode() or None
    if secret is not None and len(secret) < MIN_SECRET_BYTES:
        raise UserError(f"{SECRET}: shorter than {MIN_SECRET_BYTES} bytes; take `openssl rand -hex 32`")
    if signing is not None:
        public.add(public_key(signing))
    if public:
        _require()
    return Trust(frozenset(public), secret, signing)


def parse_key(text: str, label: str) -> bytes:
    """The 32 bytes of a key in hex or base64, or of a private key in PEM; `UserError` for anything else."""
    text = text.strip()
    if text.startswith("-----BEGIN"):
        return _from_pem(text, label)
    try:
        plain = re.fullmatch(r"[0-9a-fA-F]{64}", text)
        data = bytes.fromhex(text) if plain else base64.b64decode(text, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        data = b""
    if len(data) != KEY_BYTES:
        raise UserError(f"{label}: not an Ed25519 key; give its 32 bytes in hex or base64 (`doit cache keygen` makes one)")
    return data


def new_signing_key() -> bytes:
    """A fresh private key (32 bytes)."""
    return os.urandom(KEY_BYTES)


def public_key(signing_key: bytes) -> bytes:
    """The public key (32 bytes) of a private one."""
    return bytes(_private_key(signing_key).public_key().public_bytes_raw())


def _key_file(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).expanduser().read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{SIGNING_KEY_FILE}: {path} cannot be read ({error}); correct the path or the file") from None


def _from_pem(text: str, label: str) -> bytes:
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"{label}: not an Ed25519 private key in PEM without a password; `doit cache keygen` makes one")
    return key.private_bytes_raw()


def _private_key(signing_key: bytes) -> Any:
    _require()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(signing_key)


def _verifies(key: bytes, signature: bytes, data: bytes) -> bool:
    _require()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except InvalidSignature:
        return False
    return True


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise RemoteError("Ed25519 keys need a package; run `pip install 'doit-modelbuild[remote]'`") from None
