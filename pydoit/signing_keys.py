"""Ed25519 keys: how they are written, and where the one that signs comes from."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.errors import UserError

KEY_BYTES = 32
VARIABLE = "MODELBUILD_SIGNING_KEY"
"""The private key, or the file that holds it, in PEM, hex or base64."""
FILE_VARIABLE = "MODELBUILD_SIGNING_KEY_FILE"


def signing_key(environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The private key (32 bytes) that the environment names; None for none, `UserError` for what is no key."""
    text, path = environment.get(VARIABLE, ""), environment.get(FILE_VARIABLE, "")
    if text and not _is_key(text):
        text, path = "", text
    if path:
        try:
            text = Path(path).expanduser().read_text(encoding="ascii")
        except (OSError, ValueError):
            name = VARIABLE if environment.get(VARIABLE) else FILE_VARIABLE
            raise UserError(f"{name}: neither an Ed25519 key nor a file with one that can be read; correct it") from None
    return parse_key(text, VARIABLE) if text else None


def _is_key(text: str) -> bool:
    plain = re.fullmatch(r"[0-9a-fA-F]{64}|[A-Za-z0-9+/_-]{43}=", text.strip())
    return plain is not None or text.lstrip().startswith("-----BEGIN")


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
    return bytes(private_key(signing_key).public_key().public_bytes_raw())


def _from_pem(text: str, label: str) -> bytes:
    require_cryptography()
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


def private_key(signing_key: bytes) -> Any:
    """cryptography's form of a private key."""
    require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(signing_key)


def verifies(key: bytes, signature: bytes, data: bytes) -> bool:
    """Whether `signature` of `data` is by the private key of the public key."""
    require_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except InvalidSignature:
        return False
    return True


def require_cryptography() -> None:
    """`UserError` where the package that knows these keys is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise UserError("signatures need the package cryptography; install doit-modelbuild[sign]") from None
