"""Ed25519 signatures of statements, as DSSE envelopes (https://github.com/secure-systems-lab/dsse)."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from pydoit.errors import UserError
from pydoit.signing_keys import private_key, require_cryptography

PAYLOAD_TYPE = "application/vnd.in-toto+json"


def sign(payload: bytes, signing_key: bytes) -> dict[str, Any]:
    """The envelope of `payload`, signed with a private key (32 bytes)."""
    key = private_key(signing_key)
    signature = key.sign(_encoded(payload))
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": _identity(key.public_key()), "sig": base64.b64encode(signature).decode()}],
    }


def is_signed(envelope: Any, payload: bytes, key_file: Path) -> bool:
    """Whether the envelope holds `payload`, and one of its signatures is by the public key in PEM."""
    key = _load(key_file)
    from cryptography.exceptions import InvalidSignature

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


def _load(path: Path) -> Any:
    require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "not a key in PEM"
        raise UserError(f"{path}: {reason}; give an Ed25519 public key (`openssl pkey -pubout`)") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UserError(f"{path}: not an Ed25519 public key; make a pair with `openssl genpkey -algorithm ed25519`")
    return key
