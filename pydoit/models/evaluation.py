"""Figures of a compiled language model beside its reference: logits, continuations, divergence, perplexity, batching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pydoit.worker import progress

if TYPE_CHECKING:
    from pydoit.runtime.language import LanguageModel

Ids = NDArray[np.int32]


class Scorer(Protocol):
    """What evaluation needs of a reference."""

    def logits(self, tokens: Ids) -> NDArray[np.float32]:
        """float32 [tokens, vocabulary]."""

    def greedy(self, tokens: Ids, count: int) -> list[int]:
        """The likeliest continuation."""


def evaluate(
    model: LanguageModel, reference: Scorer, pieces: Sequence[Ids], prompts: Sequence[Ids], greedy_tokens: int
) -> dict[str, Any]:
    """All figures; `pieces` are scored whole, `prompts` continued."""
    measured = compare_scores(lambda piece: score(model, piece), reference.logits, pieces)
    equal, total = 0, 0
    for number, prompt in enumerate(prompts):
        progress(f"continuation {number + 1} of {len(prompts)}")
        count = min(greedy_tokens, model.longest + 1 - len(prompt))
        ours, theirs = greedy(model, prompt, count), reference.greedy(prompt, count)
        equal += sum(a == b for a, b in zip(ours, theirs, strict=True))
        total += len(theirs)
    return {
        **measured,
        "prompts": len(prompts),
        "greedy": equal / total if total else None,
        "chunked_max_abs": chunked_difference(model, pieces[0]),
        "batched_max_abs": batched_difference(model, prompts),
    }


def compare_scores(ours: Any, theirs: Any, pieces: Sequence[Ids]) -> dict[str, Any]:
    """Compare two functions from tokens to logits over pieces of text."""
    totals = _Totals()
    for number, piece in enumerate(pieces):
        progress(f"piece {number + 1} of {len(pieces)}")
        totals.add(ours(piece), theirs(piece), piece)
    return totals.summary()


class _Totals:
    """Sums over positions, so that a window's logits need not be kept."""

    def __init__(self) -> None:
        self.samples = self.positions = self.agreeing = self.not_finite = self.predicted = 0
        self.max_abs = self.max_rel = self.divergence = 0.0
        self.losses = [0.0, 0.0]
        self.cosine = 1.0
        self.seen: set[bytes] = set()

    def add(self, ours: NDArray[np.float32], theirs: NDArray[np.float32], tokens: Ids) -> None:
        self.samples += 1
        self.positions += len(tokens)
        self.not_finite += int(np.count_nonzero(~np.isfinite(ours)))
        difference = np.abs(ours - theirs)
        self.max_abs = max(self.max_abs, float(difference.max()))
        self.max_rel = max(self.max_rel, float(difference.max() / np.abs(theirs).max()))
        products = np.einsum("ij,ij->i", ours, theirs)
        norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
        self.cosine = min(self.cosine, float((products / np.maximum(norms, 1e-30)).min()))
        self.agreeing += int(np.count_nonzero(ours.argmax(1) == theirs.argmax(1)))
        log_ours, log_theirs = log_softmax(ours), log_softmax(theirs)
        self.divergence += float((np.exp(log_theirs) * (log_theirs - log_ours)).sum())
        following = np.arange(len(tokens) - 1)
        self.predicted += len(following)
        for index, log in enumerate((log_ours, log_theirs)):
            self.losses[index] -= float(log[following, tokens[1:]].sum())
        self.seen |= {theirs[0].tobytes(), theirs[-1].tobytes()}

    def summary(self) -> dict[str, Any]:
        perplexities = [float(np.exp(loss / self.predicted)) for loss in self.losses]
        return {
            "samples": self.samples,
            "positions": self.positions,
            "max_abs": self.max_abs,
            "max_rel": self.max_rel,
            "cosine": self.cosine,
            "not_finite": self.not_finite,
            "distinct_outputs": len(self.seen),
            "top1": self.agreeing / self.positions,
            "divergence": self.divergence / self.positions,
            "perplexity": perplexities[0],
            "reference_perplexity": perplexities[1],
            "perplexity_change": abs(perplexities[0] / perplexities[1] - 1),
        }


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Natural logarithm of the softmax over the last axis, in float64."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def score(model: LanguageModel, tokens: Ids) -> NDArray[np.float32]:
    """Logits after each token of one fresh sequence."""
    sequence = model.add()
    try:
        return model.score(sequence, tokens)
    finally:
        model.drop(sequence)


def greedy(model: LanguageModel, prompt: Ids, count: int) -> list[int]:
    """The likeliest continuation of a prompt, by prefill and decode."""
    sequence = model.add()
    try:
        chosen: list[int] = []
        logits = model.prefill(sequence, prompt)
        for _ in range(count):
            chosen.append(int(logits.argmax()))
            if len(chosen) < count:
                logits = model.decode([sequence], chosen[-1:])[0]
        return chosen
    finally:
        model.drop(sequence)


def chunked_difference(model: LanguageModel, tokens: Ids) -> float:
    """Largest difference of the last logits between a prompt given at once and in uneven pieces."""
    prompt = tokens[: min(model.chunk, model.longest)]
    expected = _last_logits(model, [prompt])
    found = _last_logits(model, np.split(prompt, [1, 1 + len(prompt) // 3]))
    return float(np.abs(found - expected).max())


def _last_logits(model: LanguageModel, parts: Sequence[Ids]) -> NDArray[np.float32]:
    """Logits after the last part of a fresh sequence's prompt."""
    sequence = model.add()
    try:
        return [model.prefill(sequence, part) for part in parts if len(part)][-1]
    finally:
        model.drop(sequence)


def batched_difference(model: LanguageModel, prompts: Sequence[Ids]) -> float | None:
    """Largest difference of logits between sequences decoded together and one at a time; None where only one has room."""
    used = _fitting(model, prompts)
    if len(used) < 2:
        return None
    last = [int(prompt[0]) for prompt in used]
    alone = [_decoded(model, [prompt], [token]) for prompt, token in zip(used, last, strict=True)]
    return float(np.abs(_decoded(model, used, last) - np.concatenate(alone)).max())


def _fitting(model: LanguageModel, prompts: Sequence[Ids]) -> list[Ids]:
    """As many of the first prompts as the cache holds at a time, each with one more token."""
    used: list[Ids] = []
    free = model.pool.pages
    for prompt in prompts[: model.sequences]:
        free -= len(prompt) // model.pool.page_size + 1
        if free >= 0 and 0 < len(prompt) < model.longest:
            used.append(prompt)
    return used


def _decoded(model: LanguageModel, prompts: Sequence[Ids], last: Sequence[int]) -> NDArray[np.float32]:
    """Logits after one token more than each prompt, decoded together."""
    sequences: list[int] = []
    try:
        for prompt in prompts:
            sequences.append(model.add())
            model.prefill(sequences[-1], prompt)
        return model.decode(sequences, last)
    finally:
        for sequence in sequences:
            model.drop(sequence)
