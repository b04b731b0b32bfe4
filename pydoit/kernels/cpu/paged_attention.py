"""Causal attention over the paged cache, page by page with a running softmax, for one head and some rows at a time."""

from __future__ import annotations

from typing import Any

from pydoit.kernels.cpu.emit import Registers, argument, load, local, primitive, reduce_lanes, splat, steps, store
from pydoit.kernels.cpu.paging import Table, check_cache, common_lanes, declare_cache, declare_tables, load_cached
from pydoit.kernels.vector_math import exp
from pydoit.target import CPU_LANES, ResolvedTarget
from pydoit.tvm_compat import script, tirx

ROWS = 4
"""Tokens of a prompt that share the loads of a page."""
VECTORS = 2
"""Vectors of a head that are summed in registers over a page."""
HIDDEN = -1e30
"""Score of a token that a row does not see; finite, so that a page without any seen token has a largest score."""


def paged_attention(
    rows: Any,
    heads: int,
    kv_heads: int,
    head_dim: int,
    page_size: int,
    pages: Any,
    cache_dtype: str,
    target: ResolvedTarget,
    *,
    table: Table,
    window: int | None,
    scale: float,
) -> Any:
    """Return the TIR function of out[r] = softmax(scale * q[r] K^T) V for every head.

    Arguments of the function: q float32 [rows, heads * head_dim], places int32 [rows], tables int32 [rows or 1,
    max_pages], cache [pages, 2, kv_heads, page_size, head_dim] of `cache_dtype`, out float32 [rows, heads * head_dim].
    Row r at place p sees places max(0, p - window + 1)..p of its pages; `heads / kv_heads` query heads share a key head.
    `table` "shared" means that all rows belong to one sequence, their places ascending. `rows` and `pages` are numbers
    or tirx.Var.

    Raises UserError where heads, head_dim or cache_dtype do not fit. Sources: Milakov and Gimelshein, Online normalizer
    calculation for softmax (2018); Kwon et al., Efficient Memory Management for LLM Serving with PagedAttention (2023).
    """
    check_cache(heads, kv_heads, head_dim, cache_dtype)
    lanes = CPU_LANES[target.arch]
    single = table == "row" or (isinstance(rows, int) and rows == 1)

    def emit() -> None:
        q = argument("q", (rows, heads * head_dim))
        places = argument("places", (rows,), "int32")
        tables = declare_tables(rows, table)
        cache = declare_cache(pages, kv_heads, page_size, head_dim, cache_dtype)
        out = argument("out", (rows, heads * head_dim))
        height = 1 if single else ROWS
        blocks = tirx.indexdiv(rows + height - 1, height)
        # Heads outermost: the later blocks of a prompt see more tokens, so equal parts of the tasks are equal work.
        with script.parallel(0, blocks * heads) as task:
            head = script.bind(tirx.indexdiv(task, blocks))
            first = script.bind(tirx.indexmod(task, blocks) * height)
            read = [script.bind(tirx.min(first + row, rows - 1)) if row else first for row in range(height)]
            kv_head = script.bind(tirx.indexdiv(head, heads // kv_heads))
            block = Block(q, cache, (head, kv_head), read, head_dim, page_size, lanes, scale)
            seen = [script.bind(places[row]) for row in read]
            start = 0 if window is None else script.bind(tirx.max(seen[0] - (window - 1), 0))
            begin = tirx.indexdiv(start, page_size) if window is not None else 0
            block.clear()
            with script.serial(0, tirx.indexdiv(seen[-1], page_size) + 1 - begin) as step:
                number = script.bind(step + begin)
                page = script.bind(tables[first if table == "row" else 0, number])
                block.add(page, [place - number * page_size for place in seen], window)
            block.finish(out)

    return primitive("paged_attention", emit)


class Block:
    """Some rows of one head: what is summed up over the pages."""

    def __init__(
        self,
        q: Any,
        cache: Any,
        heads: tuple[Any, Any],
        rows: list[Any],
        head_dim: int,
        page_size: int,
        lanes: int,
        scale: float,
    ) -> None:
        """`heads`: that of the queries and that of the keys; `rows`: indices of the rows in `q`."""
        self.q, self.cache, self.rows, self.scale = q, cache, rows, scale
        self.head, self.kv_head = heads
        self.head_dim, self.page_size, self.lanes = head_dim, page_size, lanes
        self.vector = common_lanes(lanes, head_dim)
        self.sums = local(len(rows) * head_dim)
        """float32 [rows, head_dim]: the values, weighted by exp(score - largest)."""
        self.scores = local(len(rows) * page_size)
        """float32 [rows, page_size]"""
        self.largest = Registers(len(rows), 1)
        """The largest score of each row so far."""
        self.totals = Registers(len(rows), 1)
        """The sum of the weights of each row."""

    def clear(self) -> None:
        """Begin."""
        self.largest.fill(HIDDEN)
        self.totals.fill(0.0)
        for row in range(len(self.rows)):
            with script.serial(0, self.head_dim // self.vector) as part:
                zero = splat(tirx.const(0.0, "float32"), self.vector)
                store(self.sums, zero, [row * self.head_dim + part * self.vector], self.vector)

    def add(self, page: Any, last: list[Any], window: int | None) -> None:
        """Add a page, of which row r sees the tokens up to number last[r]."""
        self._score(page, last, window)
        for row in range(len(self.rows)):
            self._weigh(row)
        steps(self.head_dim // self.vector, VECTORS, lambda part, count: self._accumulate(page, part, count))

    def finish(self, out: Any) -> None:
        """Divide by the sums of the weights and store; a row that stands for another is stored twice, the same."""
        for row, index in enumerate(self.rows):
            factor = script.bind(tirx.const(1.0, "float32") / self.totals[row])
            with script.serial(0, self.head_dim // self.vector) as part:
                value = load(self.sums, [row * self.head_dim + part * self.vector], self.vector) * splat(factor, self.vector)
                store(out, value, [index, self.head * self.head_dim + part * self.vector], self.vector)

    def _score(self, page: Any, last: list[Any], window: int | None) -> None:
        """Products of queries and keys; the largest of each row is known afterwards."""
        parts, vector = self.head_dim // self.vector, self.vector
        with script.serial(0, self.page_size) as token:
            products = Registers(len(self.rows), vector)
            products.fill(0.0)

            def multiply(part: Any, count: int) -> None:
                for offset in range(count):
                    start = (part + offset) * vector
                    key = script.bind(self._cached(0, page, token, start))
                    for row, index in enumerate(self.rows):
                        query = load(self.q, [index, self.head * self.head_dim + start], vector)
                        products[row] = products[row] + query * key

            steps(parts, min(parts, 8), multiply)
            for row in range(len(self.rows)):
                total = reduce_lanes(products[row], vector)
                if vector > 1:
                    total = tirx.Shuffle([total], [tirx.const(0, "int32")])
                hidden = token > last[row]
                if window is not None:
                    hidden = tirx.any(hidden, token + window <= last[row])
                score = tirx.Select(hidden, tirx.const(HIDDEN, "float32"), total * tirx.const(self.scale, "float32"))
                store(self.scores, score, [row * self.page_size + token], 1)

    def _weigh(self, row: int) -> None:
        """Turn the scores of a page into weights; what was summed with a smaller largest score shrinks."""
        lanes = common_lanes(self.lanes, self.page_size)
        largest = Registers(1, lanes)
        largest.fill(HIDDEN)
        base = row * self.page_size
        with script.serial(0, self.page_size // lanes) as part:
            largest[0] = tirx.max(largest[0], load(self.scores, [base + part * lanes], lanes))
        before = script.bind(self.largest[row])
        now = before
        for lane in range(lanes):
            one = largest[0] if lanes == 1 else tirx.Shuffle([largest[0]], [tirx.const(lane, "int32")])
            now = script.bind(tirx.max(now, one))
        self.largest[row] = now
        shrink = script.bind(exp(before - now))
        weights = Registers(1, lanes)
        weights.fill(0.0)
        with script.serial(0, self.page_size // lanes) as part:
            index = [base + part * lanes]
            score = load(self.scores, index, lanes)
            # A hidden token weighs nothing even where no token of the page is seen.
            seen = score > splat(tirx.const(HIDDEN / 2, "float32"), lanes)
            zero = splat(tirx.const(0.0, "float32"), lanes)
            weight = script.bind(tirx.Select(seen, exp(score - splat(now, lanes)), zero))
            store(self.scores, weight, index, lanes)
            weights[0] = weights[0] + weight
        total = reduce_lanes(weights[0], lanes)
        if lanes > 1:
            total = tirx.Shuffle([total], [tirx.const(0, "int32")])
        self.totals[row] = self.totals[row] * shrink + total
        with script.serial(0, self.head_dim // self.vector) as part:
            index = [row * self.head_dim + part * self.vector]
            store(self.sums, load(self.sums, index, self.vector) * splat(shrink, self.vector), index, self.vector)

    def _accumulate(self, page: Any, part: Any, count: int) -> None:
        """Add the weighted values of a page to `count` vectors of every row."""
        height, vector = len(self.rows), self.vector
        sums = Registers(height * count, vector)
        places = [(row, offset) for row in range(height) for offset in range(count)]
        for number, (row, offset) in enumerate(places):
            sums[number] = load(self.sums, [row * self.head_dim + (part + offset) * vector], vector)
        with script.serial(0, self.page_size) as token:
            values = [script.bind(self._cached(1, page, token, (part + offset) * vector)) for offset in range(count)]
            for number, (row, offset) in enumerate(places):
                weight = splat(load(self.scores, [row * self.page_size + token], 1), vector)
                sums[number] = sums[number] + weight * values[offset]
        for number, (row, offset) in enumerate(places):
            store(self.sums, sums[number], [row * self.head_dim + (part + offset) * vector], vector)

    def _cached(self, kind: int, page: Any, token: Any, start: Any) -> Any:
        """Keys (0) or values (1) of a token, from `start` on, in float32."""
        return load_cached(self.cache, [page, kind, self.kv_head, token, start], self.vector)
