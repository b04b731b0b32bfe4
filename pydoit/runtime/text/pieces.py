"""The bytes that each token stands for, so that text can be put together without ever splitting a character."""

from __future__ import annotations

import json
import re
from typing import Any

from pydoit.errors import UserError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_WORD_START = "\u2581"  # SentencePiece's sign for a space


def byte_alphabet() -> dict[str, int]:
    """Character -> byte of byte-level BPE: printable Latin-1 stands for itself, the rest is moved to U+0100 and up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(moved)}


class Pieces:
    """Token id -> bytes, by the decoder that tokenizer.json declares.

    Known are byte-level BPE (decoder ByteLevel) and SentencePiece's (Metaspace, or Replace and ByteFallback).
    """

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is a tokenizers.Tokenizer; raises UserError for a decoder of another kind."""
        self._tokenizer = tokenizer
        self._added: dict[int, Any] = tokenizer.get_added_tokens_decoder()
        self._alphabet = byte_alphabet()
        self._known: dict[int, bytes] = {}
        steps = _decoder_steps(tokenizer)
        kinds = [step["type"] for step in steps]
        self._byte_level = "ByteLevel" in kinds
        if not self._byte_level and not {"Metaspace", "ByteFallback"} & set(kinds):
            raise UserError(
                f"tokenizer.json declares the decoder {' + '.join(kinds) or 'none'}; text can be streamed for ByteLevel, "
                "Metaspace and ByteFallback, which language models use"
            )
        self.leading_space = any(
            (step["type"] == "Metaspace" and step.get("prepend_scheme") != "never")
            or (step["type"] == "Strip" and step.get("start", 0) > 0 and step.get("content") == " ")
            for step in steps
        )
        """True if the tokenizer puts a space before a text, which has to go when the text is shown from its start."""

    def is_special(self, token: int) -> bool:
        """True for control tokens (begin of text, end of turn), which are no part of the text."""
        added = self._added.get(token)
        return added is not None and bool(added.special)

    def bytes_of(self, token: int) -> bytes:
        """UTF-8 bytes, perhaps a part of a character; raises UserError for an id that the tokenizer does not know."""
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._find(token)
        return known

    def _find(self, token: int) -> bytes:
        text: str | None = self._tokenizer.id_to_token(token) if 0 <= token < 2**32 else None
        if text is None:
            raise UserError(f"token {token} is not in the tokenizer's vocabulary; the tokenizer is that of another model")
        if token in self._added:
            return str(self._added[token].content).encode()
        if self._byte_level:
            values = [self._alphabet.get(character) for character in text]
            return text.encode() if None in values else bytes(value for value in values if value is not None)
        if match := _BYTE_TOKEN.fullmatch(text):
            return bytes([int(match.group(1), 16)])
        return text.replace(_WORD_START, " ").encode()


def _decoder_steps(tokenizer: Any) -> list[dict[str, Any]]:
    if tokenizer.decoder is None:
        return []
    state: dict[str, Any] = json.loads(tokenizer.decoder.__getstate__())
    steps: list[dict[str, Any]] = state.get("decoders", [state])
    return steps
