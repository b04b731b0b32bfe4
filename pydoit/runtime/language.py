"""A loaded language model: sequences over a paged KV cache, prompts in chunks, decoding one or many at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.runtime.device import CpuDevice, Device, open_device
from pydoit.runtime.exchange import numpy_dtype
from pydoit.runtime.manifest import read_manifest
from pydoit.runtime.text.pages import PagePool

Logits = NDArray[np.float32]
Tokens = Sequence[int] | NDArray[np.integer[Any]]


class LanguageModel:
    """The functions of a language model's library with weights and caches bound.

    A sequence is a number from `add`; its tokens lie in pages of the cache until `drop`. Not for several threads at once.
    """

    def __init__(
        self,
        library: Path,
        weights: Sequence[Path],
        language: Mapping[str, Any],
        *,
        params: Sequence[Mapping[str, Any]] = (),
        target: Mapping[str, Any] | None = None,
        threads: int = 0,
    ) -> None:
        """`language`, `params` and `target` are those of manifest.json; `threads` 0: one for each usable CPU.

        Raises UserError where the weights are not of the shapes and dtypes in `params`.
        """
        cache = language["cache"]
        self.vocabulary = int(language["config"]["vocabulary"])
        self.context = int(language["config"]["context"])
        self.chunk = int(cache["prefill_chunk"])
        self.capacity = int(cache["tokens"])
        self.sequences = int(cache["sequences"])
        windows = language["config"]["windows"]
        window = max(windows) if all(windows) else None
        self.pool = PagePool(self.capacity // int(cache["page_size"]), int(cache["page_size"]), self.sequences, window)
        self._device: Device = open_device(library, target or {"kind": "cpu"}, threads)
        self._arguments = self._device.bind(weights, language["arguments"], language["caches"], params)
        self.device_name = self._device.name
        self.cache_bytes = sum(math.prod(item["shape"]) * numpy_dtype(item["dtype"]).itemsize for item in language["caches"])

    def instrument(self, function: Any) -> None:
        """As `Model.instrument`; on the CPU only."""
        assert isinstance(self._device, CpuDevice)
        self._device.instrument(function)

    @property
    def longest(self) -> int:
        """Tokens that one sequence may have: a sliding window frees its pages, without one the cache is the bound too."""
        return self.context if self.pool.window is not None else min(self.context, self.capacity)

    def add(self) -> int:
        """Start a sequence without tokens; raises UserError when there are too many."""
        return self.pool.add()

    def fork(self, sequence: int) -> int:
        """A new sequence with the tokens of another; they share all full pages."""
        created, copies = self.pool.fork(sequence)
        self._device.copy_pages(copies)
        return created

    def drop(self, sequence: int) -> None:
        """Forget a sequence; its pages are free again."""
        self.pool.drop(sequence)

    def length(self, sequence: int) -> int:
        """Tokens that a sequence holds."""
        return self.pool.length(sequence)

    def prefill(self, sequence: int, tokens: Tokens) -> Logits:
        """Append a prompt; logits after its last token, float32 [vocabulary]. Raises UserError when the cache is full."""
        given = self._checked(tokens)
        logits: Logits | None = None
        for step in self._chunks(sequence, given):
            logits = self._call("prefill", *step)
        assert logits is not None
        return np.asarray(logits[0])

    def score(self, sequence: int, tokens: Tokens) -> Logits:
        """Append tokens; logits after each of them, float32 [tokens, vocabulary]."""
        given = self._checked(tokens)
        return np.concatenate([self._call("score", *step) for step in self._chunks(sequence, given)])

    def decode(self, sequences: Sequence[int], tokens: Tokens) -> Logits:
        """Append one token to each sequence; logits after each, float32 [sequences, vocabulary]."""
        given = self._checked(tokens)
        if len(given) != len(sequences) or len(set(sequences)) != len(sequences):
            raise UserError("decode takes one token for each of different sequences; pass as many")
        for sequence in sequences:
            self._check_context(sequence, 1)
        positions = np.array([self.pool.length(sequence) for sequence in sequences], dtype=np.int32)
        self.pool.extend_all(dict.fromkeys(sequences, 1))
        places = positions - np.array([self.pool.start(sequence) for sequence in sequences], dtype=np.int32)
        tables = np.concatenate([self._table(sequence) for sequence in sequences])
        return self._call("decode" if len(sequences) == 1 else "batch_decode", given, positions, places, tables)

    def _chunks(self, sequence: int, tokens: NDArray[np.int32]) -> Iterator[tuple[NDArray[np.int32], ...]]:
        """The inputs of one call after the other; without a sliding window all room is made before the first."""
        self._check_context(sequence, len(tokens))
        position = self.pool.length(sequence)
        if self.pool.window is None:
            self.pool.extend(sequence, len(tokens))
        for first in range(0, len(tokens), self.chunk):
            chunk = tokens[first : first + self.chunk]
            if self.pool.window is not None:
                self.pool.extend(sequence, len(chunk))
            positions = np.arange(position + first, position + first + len(chunk), dtype=np.int32)
            yield chunk, positions, positions - np.int32(self.pool.start(sequence)), self._table(sequence)

    def _check_context(self, sequence: int, more: int) -> None:
        length = self.pool.length(sequence)
        if length + more > self.context:
            raise UserError(
                f"sequence {sequence} has {length} tokens, {more} more exceed the model's context of {self.context}; "
                "give less text"
            )

    def _table(self, sequence: int) -> NDArray[np.int32]:
        """The page table as a row of the library's width."""
        pages = self.pool.table(sequence)
        row = np.zeros((1, self.pool.pages), dtype=np.int32)
        row[0, : len(pages)] = pages
        return row

    def _call(self, function: str, *inputs: NDArray[np.int32]) -> Logits:
        return self._device.call(function, inputs, self._arguments)

    def _checked(self, tokens: Tokens) -> NDArray[np.int32]:
        given = np.asarray(tokens)
        if given.ndim != 1 or not given.size or given.dtype.kind not in "iu":
            raise UserError("a sequence needs at least one token; pass a list of token ids, whole numbers")
        if given.min() < 0 or given.max() >= self.vocabulary:
            raise UserError(f"token ids lie in 0..{self.vocabulary - 1}; use the model's own tokenizer")
        return given.astype(np.int32)


def load_language_model(path: Path | str, threads: int | None = None) -> LanguageModel:
    """Load an artifact folder that holds a language model; raises UserError where it is none or lacks its weights."""
    folder = Path(path)
    manifest = read_manifest(folder)
    if "language" not in manifest:
        raise UserError(f"{folder} holds no language model; load it with pydoit.runtime.load")
    if not manifest["weights"]:
        raise UserError(f"{folder} has no weights, their source could not be reached; build it where it can")
    return LanguageModel(
        folder / manifest["library"]["path"],
        [folder / item["path"] for item in manifest["weights"]],
        manifest["language"],
        params=manifest["params"],
        target=manifest["target"],
        threads=manifest["target"]["threads"] if threads is None else threads,
    )
