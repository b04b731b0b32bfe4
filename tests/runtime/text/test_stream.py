"""Streamed text: no character is split, no stop string is shown, and the pieces together are the whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import TEXTS, byte_level, sentence_piece
from tokenizers import Tokenizer as Inner

from pydoit.errors import UserError
from pydoit.runtime.text.pieces import Pieces, byte_alphabet
from pydoit.runtime.text.stream import Detokenizer, StopStrings, TextStream

BYTE_LEVEL, SENTENCE_PIECE = byte_level(), sentence_piece()
BOTH = pytest.mark.parametrize("inner", [BYTE_LEVEL, SENTENCE_PIECE], ids=["byte-level", "sentence-piece"])


@BOTH
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_whole_characters_and_make_the_text(inner: Inner, text: str) -> None:
    ids = inner.encode(text, add_special_tokens=False).ids
    detokenizer = Detokenizer(Pieces(inner), begins=True)
    shown = [detokenizer.push(token) for token in ids]
    assert not any("\ufffd" in piece for piece in shown)
    assert "".join(shown) + detokenizer.finish() == inner.decode(ids)


def test_a_character_of_four_tokens_comes_at_once() -> None:
    for inner, last in ((BYTE_LEVEL, "\U0001f9ff"), (SENTENCE_PIECE, "🙂")):
        ids = inner.encode("a" + last, add_special_tokens=False).ids
        detokenizer = Detokenizer(Pieces(inner), begins=True)
        shown = [detokenizer.push(token) for token in ids]
        assert "".join(shown) == "a" + last
        assert shown[-1] == last
        assert shown[-2] == shown[-3] == ""


def test_bytes_that_are_no_character() -> None:
    byte = SENTENCE_PIECE.token_to_id("<0xE2>")
    letter = SENTENCE_PIECE.token_to_id("a")
    detokenizer = Detokenizer(Pieces(SENTENCE_PIECE))
    assert [detokenizer.push(token) for token in (byte, byte, letter, byte)] == ["", "\ufffd", "\ufffda", ""]
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""


def test_replacement_character_of_the_model_itself_is_shown_at_once() -> None:
    detokenizer = Detokenizer(Pieces(BYTE_LEVEL))
    assert "".join(detokenizer.push(token) for token in BYTE_LEVEL.encode("\ufffd").ids) == "\ufffd"


def test_leading_space_goes_at_the_start_of_a_text_only() -> None:
    ids = [SENTENCE_PIECE.token_to_id(token) for token in ("</s>", "▁the", "▁P")]
    for begins, expected in ((True, "the P"), (False, " the P")):
        detokenizer = Detokenizer(Pieces(SENTENCE_PIECE), begins=begins)
        assert "".join(map(detokenizer.push, ids)) == expected
    assert TextStream(Pieces(BYTE_LEVEL), begins=True).push(BYTE_LEVEL.encode(" ").ids[0]) == " "


def test_byte_alphabet_is_the_librarys() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    alphabet = byte_alphabet()
    assert set(alphabet) == set(ByteLevel.alphabet())
    assert sorted(alphabet.values()) == list(range(256))
    encoded = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("é\n ÿ")[0][0]
    assert bytes(alphabet[character] for character in encoded).decode() == "é\n ÿ"


def test_stop_string_over_token_borders() -> None:
    ids = BYTE_LEVEL.encode("Hello, world! The capital").ids
    stream = TextStream(Pieces(BYTE_LEVEL), ["ld! T"])
    shown = [stream.push(token) for token in ids]
    assert len(ids) > 8
    assert "".join(shown) + stream.finish() == "Hello, wor"
    assert stream.stopped == "ld! T"


def test_what_might_be_a_stop_string_is_held_back_and_then_shown() -> None:
    stops = StopStrings(["\n\nUser:"])
    assert [stops.push(text) for text in ("a\n", "\nUs", "er ", "b\n")] == ["a", "", "\n\nUser ", "b"]
    assert (stops.finish(), stops.found) == ("\n", None)


def test_stop_string_inside_a_split_character() -> None:
    stream = TextStream(Pieces(SENTENCE_PIECE), ["🙂"])
    shown = [stream.push(token) for token in SENTENCE_PIECE.encode("the 🙂 a", add_special_tokens=False).ids]
    assert "".join(shown) == " the "
    assert stream.stopped == "🙂"


def test_unfinished_character_at_the_end_meets_the_stop_strings() -> None:
    stream = TextStream(Pieces(SENTENCE_PIECE), ["a\ufffd"])
    assert stream.push(SENTENCE_PIECE.token_to_id("a")) == ""
    assert stream.push(SENTENCE_PIECE.token_to_id("<0xE2>")) == ""
    assert (stream.finish(), stream.stopped) == ("", "a\ufffd")


def test_empty_stop_string_is_refused() -> None:
    with pytest.raises(UserError, match="stop string is empty"):
        StopStrings(["x", ""])


@settings(max_examples=300)
@given(
    text=st.text("abc", max_size=25),
    stops=st.lists(st.text("abc", min_size=1, max_size=5), max_size=3),
    borders=st.sets(st.integers(0, 25)),
)
def test_cutting_differently_shows_the_same(text: str, stops: list[str], borders: set[int]) -> None:
    def shown(pieces: list[str]) -> tuple[str, str | None]:
        machine = StopStrings(stops)
        return "".join([machine.push(piece) for piece in pieces]) + machine.finish(), machine.found

    cuts = [0, *sorted(borders), len(text)]
    result = shown([text[start:end] for start, end in pairwise(cuts)])
    assert result == shown(list(text))
    assert result[1] is not None or result[0] == text
    assert not any(stop in result[0] for stop in stops)
    if result[1] is None:
        assert not any(stop in text for stop in stops)
