"""TfIdfVectorizer of integers: how often each n-gram of a constant pool occurs, with gaps."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, static_shape

MAX_COMPARISONS = 4096
"""n-grams times gaps; each is code of its own."""


def tf_idf_vectorizer(node: Node) -> Expr:
    """X [tokens] or [batch, tokens] of int32 or int64 -> float32 [(batch,) outputs]."""
    from tvm import relax

    x = node[0]
    pool = node.get("pool_int64s")
    if pool is None:
        raise node.refuse("a pool of strings")
    flat = len(static_shape(node, x)) == 1
    x = node.emit(relax.op.expand_dims(x, [0])) if flat else x
    indexes = list(node.get("ngram_indexes"))
    weights = list(node.get("weights") or [1.0] * len(indexes))
    columns: list[Expr | None] = [None] * (max(indexes) + 1)
    if len(indexes) * (node.get("max_skip_count") + 1) > MAX_COMPARISONS:
        raise node.refuse(f"a pool of {len(indexes)} n-grams")
    for number, gram in enumerate(_grams(list(pool), list(node.get("ngram_counts")))):
        if node.get("min_gram_length") <= len(gram) <= node.get("max_gram_length"):
            columns[indexes[number]] = _weighted(node, _count(node, x, gram), weights[number])
    batch = static_shape(node, x)[0]
    nothing = node.emit(relax.op.zeros([batch], "float32"))
    rows = [node.emit(relax.op.expand_dims(nothing if column is None else column, [1])) for column in columns]
    result = node.emit(relax.op.concat(rows, axis=1)) if len(rows) > 1 else rows[0]
    return node.emit(relax.op.squeeze(result, [0])) if flat else result


def _grams(pool: list[int], starts: list[int]) -> list[list[int]]:
    """The pool lists all 1-grams, then all 2-grams, ...; `starts` says where each length begins."""
    grams = []
    for length, first in enumerate(starts, start=1):
        last = starts[length] if length < len(starts) else len(pool)
        grams += [pool[i : i + length] for i in range(first, last, length)]
    return grams


def _count(node: Node, x: Expr, gram: list[int]) -> Expr:
    """[batch]: occurrences whose tokens lie 1..max_skip_count + 1 apart (a 1-gram has no gaps)."""
    from tvm import relax

    batch, tokens = static_shape(node, x)
    total = node.emit(relax.op.zeros([batch], "float32"))
    for skip in range(node.get("max_skip_count") + 1 if len(gram) > 1 else 1):
        reach = (len(gram) - 1) * (skip + 1)
        if reach >= tokens:
            continue
        hit = None
        for place, token in enumerate(gram):
            first = place * (skip + 1)
            part = node.emit(relax.op.strided_slice(x, axes=[1], begin=[first], end=[first + tokens - reach]))
            same = node.emit(relax.op.equal(part, const(token, dtype_of(x))))
            hit = same if hit is None else node.emit(relax.op.logical_and(hit, same))
        found = node.emit(relax.op.sum(node.emit(relax.op.astype(hit, "float32")), axis=[1]))
        total = node.emit(relax.op.add(total, found))
    return total


def _weighted(node: Node, count: Expr, weight: float) -> Expr:
    from tvm import relax

    mode = node.get("mode")
    if mode == "IDF":
        count = node.emit(relax.op.minimum(count, const(1, "float32")))
    return count if mode == "TF" else node.emit(relax.op.multiply(count, const(weight, "float32")))


CONVERTERS = {"TfIdfVectorizer": tf_idf_vectorizer}
