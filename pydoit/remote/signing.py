"""Signatures of action entries: whose entries a reader takes, and how a writer signs its own."""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydoit.errors import UserError
from pydoit.keys import canonical
from pydoit.signing_keys import parse_key, private_key, public_key, require_cryptography, signing_key, verifies

SCHEMA = 1
CONTEXT = b"doit-modelbuild action entry 1\n"
"""Signed before the entry, so that a signature made for something else is worth nothing here."""
MIN_SECRET_BYTES = 16
SECRET_VARIABLE = "MODELBUILD_CACHE_SECRET"  # noqa: S105 - its name


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
        return canonical({"schema": SCHEMA, "entry": entry, "signature": self.sign(CONTEXT + canonical(entry))})

    def unseal(self, data: bytes) -> Any:
        """The entry, when a trusted key signed it; None for anything else, whatever it is."""
        try:
            value = json.loads(data)
            signed = CONTEXT + canonical(value["entry"])
            if value["schema"] == SCHEMA and self.is_trusted(value["signature"], signed):
                return value["entry"]
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # not an entry: a miss like one that a stranger signed
        return None

    def sign(self, data: bytes) -> dict[str, str]:
        """A signature of `data`; ask `can_sign` first."""
        if self.signing_key is not None:
            key = private_key(self.signing_key)
            return {
                "algorithm": "ed25519",
                "key": public_key(self.signing_key).hex(),
                "value": key.sign(data).hex(),
            }
        assert self.secret is not None
        return {"algorithm": "hmac-sha256", "value": hmac.digest(self.secret, data, "sha256").hex()}

    def is_trusted(self, signature: Any, data: bytes) -> bool:
        """Whether `signature` is one of `data` by a trusted key; False for anything that is no signature."""
        try:
            value = bytes.fromhex(signature["value"])
            if signature["algorithm"] == "hmac-sha256":
                return self.secret is not None and hmac.compare_digest(value, hmac.digest(self.secret, data, "sha256"))
            key = bytes.fromhex(signature["key"])
            return signature["algorithm"] == "ed25519" and key in self.public_keys and verifies(key, value, data)
        except (ValueError, KeyError, TypeError):
            return False


def read_trust(trusted_keys: Iterable[str], environment: Mapping[str, str] = os.environ) -> Trust:
    """The workspace's trusted keys with what the environment holds; `UserError` for a malformed key."""
    public = {parse_key(text, "trusted_keys") for text in trusted_keys}
    signing = signing_key(environment)
    secret = environment.get(SECRET_VARIABLE, "").encode() or None
    if secret is not None and len(secret) < MIN_SECRET_BYTES:
        raise UserError(f"{SECRET_VARIABLE}: shorter than {MIN_SECRET_BYTES} bytes; take `openssl rand -hex 32`")
    if signing is not None:
        public.add(public_key(signing))
    if public:
        require_cryptography()
    return Trust(frozenset(public), secret, signing)
