"""Text from tokens as they come: whole characters only, and nothing that turns out to belong to a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from pydoit.errors import UserError
from pydoit.runtime.text.pieces import Pieces


class Detokenizer:
    """Puts tokens together; the bytes of a character that is not complete yet are kept until the rest has come.

    Bytes that can never become a character are shown as U+FFFD, one for each longest part that might have.
    """

    def __init__(self, pieces: Pieces, *, begins: bool = False, skip_special: bool = True) -> None:
        """`begins`: the tokens are a text from its start, so that the space SentencePiece puts before it is left out."""
        self._pieces = pieces
        self._drops_space = begins and pieces.leading_space
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that `token` completes, perhaps empty."""
        if self._skip_special and self._pieces.is_special(token):
            return ""
        return self._shown(self._decoder.decode(self._pieces.bytes_of(token)))

    def finish(self) -> str:
        """What is left: U+FFFD if the last character never became complete, else nothing."""
        return self._shown(self._decoder.decode(b"", final=True))

    def _shown(self, text: str) -> str:
        if text and self._drops_space:
            self._drops_space = False
            return text.removeprefix(" ")
        return text


class StopStrings:
    """Cuts text before the stop string that is complete first; holds back what may be the start of one.

    How the text is cut into pieces makes no difference to what is shown.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        """`stop` is one text or several; raises UserError for an empty one, and for what is no text."""
        self._stop = (stop,) if isinstance(stop, str) else tuple(stop)
        for item in self._stop:
            if not isinstance(item, str):
                raise UserError(f"a stop string is {item!r}; give text")
            if not item:
                raise UserError("a stop string is empty; give at least one character, or no stop string")
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text."""

    def push(self, text: str) -> str:
        """The text that may be shown now; nothing any more once a stop string was found."""
        if self.found is not None:
            return ""
        text = self._held + text
        starts = [(text.find(stop), stop) for stop in self._stop]
        ends = [(start + len(stop), start, stop) for start, stop in starts if start >= 0]
        if ends:
            _, start, self.found = min(ends)
            self._held = ""
            return text[:start]
        held = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """What was held back and turned out to be no stop string."""
        held, self._held = self._held, ""
        return held


class TextStream:
    """Tokens in, text to show out; `stopped` names the stop string that ended it.

    `begins` is for a chat's answer (a text of its own), False for text that goes on after a prompt.
    """

    def __init__(self, pieces: Pieces, stop: Sequence[str] = (), *, begins: bool = False) -> None:
        self._detokenizer = Detokenizer(pieces, begins=begins)
        self._stops = StopStrings(stop)

    @property
    def stopped(self) -> str | None:
        """The stop string that was met, or None."""
        return self._stops.found

    def push(self, token: int) -> str:
        """The text that can be shown after `token`, perhaps empty."""
        return self._stops.push(self._detokenizer.push(token))

    def finish(self) -> str:
        """The rest, when no more tokens come."""
        return self._stops.push(self._detokenizer.finish()) + self._stops.finish()


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the start of `stop`, but not all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
