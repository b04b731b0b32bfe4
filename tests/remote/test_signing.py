"""Whose entries are taken: signatures by Ed25519 and HMAC, and everything that is no signature of a trusted key."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pydoit.errors import UserError
from pydoit.remote.signing import Trust, read_trust
from pydoit.signing_keys import new_signing_key, parse_key, public_key

ENTRY: dict[str, Any] = {"key": "k", "outputs": {"ä": 1}, "seconds": 0.1}
SIGNING = bytes(range(32))
WRITER = Trust(signing_key=SIGNING)
READER = Trust(frozenset({public_key(SIGNING)}))
SECRET = Trust(secret=b"0123456789abcdef")


def test_a_trusted_key_is_taken() -> None:
    assert READER.unseal(WRITER.seal(ENTRY)) == ENTRY
    assert SECRET.unseal(SECRET.seal(ENTRY)) == ENTRY


def test_another_key_is_not() -> None:
    stranger = Trust(signing_key=new_signing_key())
    assert READER.unseal(stranger.seal(ENTRY)) is None
    assert READER.unseal(SECRET.seal(ENTRY)) is None
    assert SECRET.unseal(WRITER.seal(ENTRY)) is None
    assert Trust(secret=b"fedcba9876543210").unseal(SECRET.seal(ENTRY)) is None
    assert Trust().unseal(WRITER.seal(ENTRY)) is None


@pytest.mark.parametrize("trust", [READER, SECRET])
def test_a_public_key_is_no_secret(trust: Trust) -> None:
    """The classic confusion: an HMAC made with what everybody knows."""
    forged = Trust(secret=public_key(SIGNING)).seal(ENTRY)
    assert trust.unseal(forged) is None


@pytest.mark.parametrize("trust", [(WRITER, READER), (SECRET, SECRET)])
def test_any_change_is_seen(trust: tuple[Trust, Trust]) -> None:
    writer, reader = trust
    sealed = writer.seal(ENTRY)
    assert reader.unseal(sealed.replace(b'"seconds":0.1', b'"seconds":0.2')) is None
    for position in range(len(sealed)):
        changed = reader.unseal(sealed[:position] + bytes([sealed[position] ^ 1]) + sealed[position + 1 :])
        assert changed in (None, ENTRY), position  # a letter of a hex number in the other case is the same number


@pytest.mark.parametrize("data", [
    b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"schema":1}', b'{"schema":1,"entry":{},"signature":null}', b"[" * 100_000,
    b'{"schema":1,"entry":{},"signature":{"algorithm":"none","value":"","key":""}}',
    b'{"schema":1,"entry":{},"signature":{"algorithm":"hmac-sha256","value":7}}',
    b'{"schema":1,"entry":{},"signature":{"algorithm":["ed25519"],"value":"","key":""}}',
    b'{"schema":1,"entry":NaN,"signature":{"algorithm":"hmac-sha256","value":""}}',
    json.dumps(ENTRY).encode(),
])  # fmt: skip
def test_what_is_not_signed_is_a_miss(data: bytes) -> None:
    assert READER.unseal(data) is None
    assert SECRET.unseal(data) is None


def test_keys_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SIGNING.hex()}\n")
    for environment in (
        {"MODELBUILD_SIGNING_KEY": SIGNING.hex()},
        {"MODELBUILD_SIGNING_KEY": str(tmp_path / "key")},
        {"MODELBUILD_SIGNING_KEY_FILE": str(tmp_path / "key")},
    ):
        trust = read_trust((), environment)
        assert trust.unseal(trust.seal(ENTRY)) == ENTRY
        assert READER.unseal(trust.seal(ENTRY)) == ENTRY
    assert not read_trust((), {}).can_read
    readers = read_trust([base64.b64encode(public_key(SIGNING)).decode()], {})
    assert readers.can_read
    assert not readers.can_sign


def test_a_key_of_openssl(tmp_path: Path) -> None:
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "key.pem"], check=True)
    trust = read_trust((), {"MODELBUILD_SIGNING_KEY_FILE": str(tmp_path / "key.pem")})
    assert trust.unseal(trust.seal(ENTRY)) == ENTRY


@pytest.mark.parametrize(
    "text", ["", "abc", "g" * 64, "00" * 31, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"]
)
def test_a_malformed_key_is_an_error(text: str) -> None:
    with pytest.raises(UserError, match="not an Ed25519"):
        parse_key(text, "MODELBUILD_SIGNING_KEY")


def test_a_short_secret_and_a_lost_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="16 bytes"):
        read_trust((), {"MODELBUILD_CACHE_SECRET": "short"})
    with pytest.raises(UserError, match="can be read"):
        read_trust((), {"MODELBUILD_SIGNING_KEY_FILE": str(tmp_path / "none")})
