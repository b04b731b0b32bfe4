"""Ed25519 signatures of statements, as DSSE envelopes (https://github.com/secure-systems-lab/dsse)."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from pydoit.errors import UserError

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MISSING = "signatures need the package cryptography; install doit-modelbuild[sign]"


def sign(payload: bytes, key_file: Path) -> dict[str, Any]:
    """The envelope of `payload`, signed with a private key in PEM; UserError for what is no Ed25519 key."""
    key = _load(key_file, private=True)
    signature = key.sign(_encoded(payload))
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": _identity(key.public_key()), "sig": base64.b64encode(signature).decode()}],
    }


def is_signed(envelope: Any, payload: bytes, key_file: Path) -> bool:
    """Whether the envelope holds `payload`, and one of its signatures is by the public key in PEM."""
    from cryptography.exceptions import InvalidSignature

    key = _load(key_file, private=False)
    try:
        signatures = [base64.b64decode(item["sig"]) for item in envelope["signatures"]]
        held = base64.b64decode(envelope["payload"])
    except (KeyError, TypeError, ValueError):
        return False
    if envelope.get("payloadType") != PAYLOAD_TYPE or held != payload:
        return False
    for signature in signatures:
        try:
            key.verify(signature, _encoded(payload))
        except InvalidSignature:
            continue
        return True
    return False


def _encoded(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def _identity(public: Any) -> str:
    return hashlib.sha256(public.public_bytes_raw()).hexdigest()


def _load(path: Path, *, private: bool) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise UserError(MISSING) from None
    kind = "private" if private else "public"
    wanted = ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey
    try:
        data = path.read_bytes()
        key = serialization.load_pem_private_key(data, None) if private else serialization.load_pem_public_key(data)
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "not a key in PEM without a password"
        raise UserError(f"{path}: {reason}; give an Ed25519 {kind} key (`openssl genpkey -algorithm ed25519`)") from None
    if not isinstance(key, wanted):
        raise UserError(f"{path}: not an Ed25519 {kind} key; make one with `openssl genpkey -algorithm ed25519`")
    return key
