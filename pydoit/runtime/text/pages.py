"""Book-keeping of a paged KV cache, without its tensors: which sequence holds which pages, and what may be written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError


class PageCopy(NamedTuple):
    """The keys and values of page `source` have to be copied to page `destination`, in every layer."""

    source: int
    destination: int


@dataclass
class _Sequence:
    length: int = 0
    first: int = 0
    """Index of the first page held, counted from position 0; more than 0 once a sliding window has passed."""
    pages: list[int] = field(default_factory=list)


class PagePool:
    """Pages of a KV cache and the sequences that hold them; pages that are full may be shared by forked sequences.

    A page that has room left belongs to one sequence alone, so that what a sequence writes is never seen by another.
    Every call either does all that it was asked or changes nothing and raises UserError.
    """

    def __init__(self, pages: int, page_size: int, max_sequences: int, window: int | None = None) -> None:
        """`pages` of `page_size` tokens each for at most `max_sequences` at a time.

        With `window`, position p attends to p - window + 1 ... p only, and pages that no later position attends to are
        freed when a sequence grows.
        """
        limits = {"pages": pages, "page_size": page_size, "max_sequences": max_sequences, "window": window}
        for name, value in limits.items():
            if value is not None and value < 1:
                raise UserError(f"the KV cache's {name} is {value}; give at least 1")
        self.page_size, self.max_sequences, self.window = page_size, max_sequences, window
        self.pages = pages
        self._free = list(reversed(range(pages)))
        self._holders: Counter[int] = Counter()
        self._sequences: dict[int, _Sequence] = {}

    @property
    def sequences(self) -> list[int]:
        """Ids of the sequences held, ascending."""
        return sorted(self._sequences)

    @property
    def free_tokens(self) -> int:
        """Tokens for which there are pages that nobody holds (room in the sequences' last pages is not counted)."""
        return len(self._free) * self.page_size

    def length(self, sequence: int) -> int:
        """Tokens that `sequence` has had so far; those that a sliding window has passed count too."""
        return self._find(sequence).length

    def start(self, sequence: int) -> int:
        """Position of the first token in `table(sequence)`: a multiple of the page size, 0 without a sliding window."""
        return self._find(sequence).first * self.page_size

    def table(self, sequence: int) -> NDArray[np.int32]:
        """int32 [pages held]: token p of `sequence` lies in page table[(p - start) // page_size], slot p % page_size."""
        return np.array(self._find(sequence).pages, np.int32)

    def slots(self, sequence: int, tokens: int) -> NDArray[np.int32]:
        """int32 [tokens]: where the last `tokens` tokens of `sequence` lie, as page * page_size + slot."""
        held = self._find(sequence)
        positions = np.arange(held.length - tokens, held.length)
        if tokens and positions[0] < held.first * self.page_size:
            raise UserError(f"sequence {sequence} no longer holds its last {tokens} tokens; ask for fewer")
        pages = np.array(held.pages, np.int32)[positions // self.page_size - held.first]
        return (pages * self.page_size + positions % self.page_size).astype(np.int32)

    def add(self) -> int:
        """Start an empty sequence and return its id: the lowest from 0 to max_sequences - 1 that is not in use."""
        if len(self._sequences) >= self.max_sequences:
            raise UserError(
                f"the KV cache holds {self.max_sequences} sequences, its maximum, and another was asked for; "
                "drop one, or build with a larger max_sequences"
            )
        sequence = next(index for index in range(self.max_sequences) if index not in self._sequences)
        self._sequences[sequence] = _Sequence()
        return sequence

    def extend(self, sequence: int, tokens: int) -> NDArray[np.int32]:
        """Make room for `tokens` more tokens; returns the page table (see `table`) that attention and append use now."""
        self.extend_all({sequence: tokens})
        return self.table(sequence)

    def extend_all(self, tokens: Mapping[int, int]) -> None:
        """Make room in several sequences, {id: tokens}, or in none of them when the pages do not suffice for all."""
        for sequence, count in tokens.items():
            self._find(sequence)
            if count < 1:
                raise UserError(f"sequence {sequence} cannot grow by {count} tokens; give at least 1")
        passed = {sequence: self._passed(self._sequences[sequence]) for sequence in tokens}
        released = Counter(page for pages in passed.values() for page in pages)
        gained = sum(self._holders[page] == count for page, count in released.items())
        needed = {sequence: self._needed(self._sequences[sequence], count) for sequence, count in tokens.items()}
        if sum(needed.values()) > len(self._free) + gained:
            raise UserError(self._full(f"{sum(tokens.values())} more tokens", sum(needed.values()), gained))
        for sequence, pages in passed.items():
            held = self._sequences[sequence]
            self._release(pages)
            held.pages, held.first = held.pages[len(pages) :], held.first + len(pages)
        for sequence, count in tokens.items():
            held = self._sequences[sequence]
            held.pages += self._take(needed[sequence])
            held.length += count

    def fork(self, sequence: int, length: int | None = None) -> tuple[int, list[PageCopy]]:
        """Start a sequence with the first `length` (default all) tokens of another; returns its id and copies to do.

        Full pages are shared; a page that `length` fills only in part is copied, so that each can go on in its own.
        """
        held = self._find(sequence)
        length = held.length if length is None else length
        if not 0 <= length <= held.length:
            raise UserError(f"sequence {sequence} has {held.length} tokens and cannot be forked after {length}")
        first = self._window_page(length)
        if first < held.first:
            raise UserError(
                f"sequence {sequence} cannot be forked after {length} tokens: pages before {held.first * self.page_size} "
                "have left the sliding window; fork it at a later token"
            )
        shared = held.pages[first - held.first : length // self.page_size - held.first]
        partial = length % self.page_size > 0
        if partial and not self._free:
            raise UserError(self._full(f"a fork of sequence {sequence}", 1, 0))
        child = self.add()
        self._holders.update(shared)
        copies = []
        if partial:
            copies = [PageCopy(held.pages[length // self.page_size - held.first], *self._take(1))]
        self._sequences[child] = _Sequence(length, first, [*shared, *(copy.destination for copy in copies)])
        return child, copies

    def drop(self, sequence: int) -> None:
        """Forget `sequence` and free the pages that no other sequence holds."""
        self._release(self._find(sequence).pages)
        del self._sequences[sequence]

    def _find(self, sequence: int) -> _Sequence:
        held = self._sequences.get(sequence)
        if held is None:
            known = ", ".join(map(str, self.sequences)) or "none"
            raise UserError(f"the KV cache holds no sequence {sequence}; it holds: {known}")
        return held

    def _window_page(self, length: int) -> int:
        """The first page that a token at position `length` attends to."""
        return 0 if self.window is None else max(length - self.window + 1, 0) // self.page_size

    def _passed(self, held: _Sequence) -> list[int]:
        return held.pages[: max(self._window_page(held.length) - held.first, 0)]

    def _needed(self, held: _Sequence, tokens: int) -> int:
        return -(-(held.length + tokens) // self.page_size) - -(-held.length // self.page_size)

    def _take(self, count: int) -> list[int]:
        taken = [self._free.pop() for _ in range(count)]
        self._holders.update(taken)
        return taken

    def _release(self, pages: Iterable[int]) -> None:
        for page in pages:
            self._holders[page] -= 1
            if not self._holders[page]:
                del self._holders[page]
                self._free.append(page)

    def _full(self, asked: str, needed: int, gained: int) -> str:
        lengths = [held.length for held in self._sequences.values()]
        return (
            f"the KV cache is full: {asked} need {needed} pages of {self.page_size} tokens and {len(self._free) + gained} of "
            f"{self.pages} are free ({len(lengths)} sequences hold the rest; the longest has {max(lengths)} tokens); "
            "drop a sequence, ask for fewer tokens, or build with a larger capacity"
        )
