"""The page pool against a cache that really holds tokens: what a sequence reads is what it wrote, and nothing leaks."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from pydoit.errors import UserError
from pydoit.runtime.text.pages import PageCopy, PagePool


class CacheMachine(RuleBasedStateMachine):
    """Random adds, growth, forks and drops; every token is a number of its own, written where the pool says."""

    held = Bundle("held")

    @initialize(
        pages=st.integers(1, 9), page_size=st.integers(1, 4), sequences=st.integers(1, 5), window=st.none() | st.integers(1, 9)
    )
    def start(self, pages: int, page_size: int, sequences: int, window: int | None) -> None:
        self.pool = PagePool(pages, page_size, sequences, window)
        self.cache = np.full(pages * page_size, -1)
        self.tokens: dict[int, list[int]] = {}
        self.fresh = count()

    def state(self) -> dict[int, tuple[int, int, list[int]]]:
        pool = self.pool
        return {key: (pool.length(key), pool.start(key), pool.table(key).tolist()) for key in pool.sequences}

    def write(self, sequence: int, tokens: int) -> None:
        values = [next(self.fresh) for _ in range(tokens)]
        self.cache[self.pool.slots(sequence, tokens)] = values
        self.tokens[sequence] += values

    @rule(target=held)
    def add(self) -> object:
        if len(self.tokens) == self.pool.max_sequences:
            with pytest.raises(UserError, match="its maximum"):
                self.pool.add()
            return multiple()
        sequence = self.pool.add()
        assert sequence not in self.tokens
        self.tokens[sequence] = []
        return sequence

    @rule(sequence=held, tokens=st.integers(1, 12))
    def extend(self, sequence: int, tokens: int) -> None:
        before, free = self.state(), self.pool.free_tokens
        try:
            table = self.pool.extend(sequence, tokens)
        except UserError:
            assert (self.state(), self.pool.free_tokens) == (before, free)
            assert tokens > free + -len(self.tokens[sequence]) % self.pool.page_size
            return
        assert table.dtype == np.int32
        assert table.tolist() == self.pool.table(sequence).tolist()
        self.write(sequence, tokens)

    @rule(growth=st.dictionaries(held, st.integers(1, 6), max_size=4))
    def extend_all(self, growth: dict[int, int]) -> None:
        before, free = self.state(), self.pool.free_tokens
        try:
            self.pool.extend_all(growth)
        except UserError:
            assert (self.state(), self.pool.free_tokens) == (before, free)
            return
        for sequence, tokens in growth.items():
            self.write(sequence, tokens)

    @rule(target=held, sequence=held, data=st.data())
    def fork(self, sequence: int, data: st.DataObject) -> object:
        length = data.draw(st.none() | st.integers(0, len(self.tokens[sequence])))
        before, free = self.state(), self.pool.free_tokens
        try:
            child, copies = self.pool.fork(sequence, length)
        except UserError:
            assert (self.state(), self.pool.free_tokens) == (before, free)
            return multiple()
        size = self.pool.page_size
        for source, destination in copies:
            self.cache[destination * size : (destination + 1) * size] = self.cache[source * size : (source + 1) * size]
        self.tokens[child] = self.tokens[sequence][:length]
        return child

    @rule(sequence=consumes(held))
    def drop(self, sequence: int) -> None:
        self.pool.drop(sequence)
        del self.tokens[sequence]

    @invariant()
    def what_is_attended_to_is_what_was_written(self) -> None:
        for sequence, tokens in self.tokens.items():
            table, start, size = self.pool.table(sequence), self.pool.start(sequence), self.pool.page_size
            assert self.pool.length(sequence) == len(tokens)
            window = self.pool.window or len(tokens) + 1
            oldest = max(len(tokens) + 1 - window, 0)
            assert start <= oldest
            for position in range(oldest, len(tokens)):
                page = table[(position - start) // size]
                assert self.cache[page * size + position % size] == tokens[position]

    @invariant()
    def every_page_is_free_or_held(self) -> None:
        held = {int(page) for sequence in self.tokens for page in self.pool.table(sequence)}
        assert self.pool.free_tokens == (self.pool.pages - len(held)) * self.pool.page_size


CacheMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCache = CacheMachine.TestCase


def test_fork_shares_full_pages_and_copies_the_last() -> None:
    pool = PagePool(pages=4, page_size=4, max_sequences=2)
    parent = pool.add()
    table = pool.extend(parent, 10).tolist()
    child, copies = pool.fork(parent)
    assert copies == [PageCopy(table[2], pool.table(child)[2])]
    assert pool.table(child).tolist()[:2] == table[:2]
    assert pool.free_tokens == 0
    pool.drop(parent)
    assert pool.free_tokens == 4


def test_sliding_window_frees_pages_that_it_has_passed() -> None:
    pool = PagePool(pages=4, page_size=4, max_sequences=1, window=5)
    sequence = pool.add()
    for length in range(1, 200):
        pool.extend(sequence, 1)
        assert pool.length(sequence) == length
        assert pool.start(sequence) <= max(length - 5, 0)
    assert len(pool.table(sequence)) <= 3


def test_full_cache_says_what_is_held_and_asked() -> None:
    pool = PagePool(pages=4, page_size=16, max_sequences=2)
    first, second = pool.add(), pool.add()
    pool.extend(first, 33)
    with pytest.raises(UserError, match=r"20 more tokens need 2 pages of 16 tokens and 1 of 4 are free .*longest has 33"):
        pool.extend(second, 20)
    assert pool.extend(second, 16).shape == (1,)
    assert pool.extend(first, 15).shape == (3,)


@pytest.mark.parametrize("arguments", [(0, 16, 1), (4, 0, 1), (4, 16, 0), (4, 16, 1, 0)])
def test_sizes_must_be_positive(arguments: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="at least 1"):
        PagePool(*arguments)


def test_unknown_sequences_and_impossible_requests() -> None:
    pool = PagePool(pages=4, page_size=2, max_sequences=2, window=2)
    with pytest.raises(UserError, match="no sequence 0; it holds: none"):
        pool.drop(0)
    sequence = pool.add()
    with pytest.raises(UserError, match="at least 1"):
        pool.extend(sequence, 0)
    pool.extend(sequence, 6)
    pool.extend(sequence, 1)
    with pytest.raises(UserError, match="cannot be forked after 8"):
        pool.fork(sequence, 8)
    with pytest.raises(UserError, match="left the sliding window"):
        pool.fork(sequence, 2)
    with pytest.raises(UserError, match="ask for fewer"):
        pool.slots(sequence, 6)
