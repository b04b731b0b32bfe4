"""The next token from a model's logits: greedy, or drawn after penalty, temperature, top-k, top-p and min-p."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import ModelBuildError, UserError

_FIRST_CANDIDATES = 256
_CANDIDATE_GROWTH = 8
_BLOCK = 512


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. The defaults draw from the model's own distribution."""

    temperature: float = 1.0
    """Logits are divided by it; 0 takes the most probable token (the lowest id of several)."""
    top_k: int = 0
    """Keep the k most probable tokens, and all that are as probable as the k-th; 0 keeps all."""
    top_p: float = 1.0
    """Keep the fewest most probable tokens whose probabilities sum to top_p; 1 keeps all."""
    min_p: float = 0.0
    """Keep tokens at least min_p times as probable as the most probable one; 0 keeps all."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in the history (CTRL, arXiv 1909.05858); 1 is off."""
    seed: int | None = None
    """The same seed and logits give the same tokens; None takes one from the operating system."""
    logprobs: int = 0
    """How many of the most probable tokens are returned with each token."""

    def __post_init__(self) -> None:
        """Raise UserError for a value out of range."""
        wanted: dict[str, tuple[str, Callable[[Any], bool]]] = {
            "temperature": ("a number of at least 0", lambda value: _finite(value) and value >= 0),
            "top_k": ("a whole number of at least 0 (0: all)", lambda value: _whole(value) and value >= 0),
            "top_p": ("a number above 0 and at most 1", lambda value: _finite(value) and 0 < value <= 1),
            "min_p": ("a number from 0 to 1", lambda value: _finite(value) and 0 <= value <= 1),
            "repetition_penalty": ("a number from 0.01 to 100 (1: off)", lambda value: _finite(value) and 0.01 <= value <= 100),
            "seed": (
                "a whole number from 0 to 2**64 - 1",
                lambda value: value is None or (_whole(value) and 0 <= value < 2**64),
            ),
            "logprobs": ("a whole number of at least 0", lambda value: _whole(value) and value >= 0),
        }
        for name, (rule, kept) in wanted.items():
            if not kept(getattr(self, name)):
                raise UserError(f"{name} is {getattr(self, name)!r}; give {rule}")


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _finite(value: Any) -> bool:
    return _whole(value) or (isinstance(value, float | np.floating) and math.isfinite(value))


class TokenLogprob(NamedTuple):
    """A token and the natural logarithm of its probability."""

    token: int
    logprob: float


class Sampled(NamedTuple):
    """A chosen token; log-probabilities are those of the model, before penalty, temperature and filters."""

    token: int
    logprob: float
    top: tuple[TokenLogprob, ...]
    """The `Sampling.logprobs` most probable tokens, most probable first, the lower id first of equal ones."""


class Sampler:
    """Chooses tokens for one sequence; its random state advances by one draw a token.

    The steps come in transformers' order: repetition penalty, temperature, top-k, top-p, min-p, each on what the one
    before has left. (llama.cpp's default applies the temperature last, so that its top-p does not depend on it.)
    """

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._random = np.random.Generator(np.random.Philox(sampling.seed))

    def next(self, logits: NDArray[np.float32], history: Sequence[int] | NDArray[np.integer] = ()) -> Sampled:
        """Choose from float32 `logits` [vocabulary]; `history` is the prompt and what was generated so far.

        Raises ModelBuildError if a logit is NaN or none is finite, UserError if `history` holds an unknown id.
        """
        if logits.ndim != 1 or not logits.size:
            raise UserError(f"logits have the shape {list(logits.shape)}; give those of one position, [vocabulary]")
        highest = float(logits.max())
        if not math.isfinite(highest):
            raise ModelBuildError(
                f"the model's logits are not finite (the highest is {highest}): its weights or the quantization overflow; "
                "run `doit verify`, or build with precision float32"
            )
        scores = self._penalized(logits, history)
        token = int(scores.argmax()) if self.sampling.temperature == 0 else self._draw(scores)
        normalizer = highest + math.log(np.exp(logits - np.float32(highest)).sum(dtype=np.float64))
        top = best(logits, self.sampling.logprobs) if self.sampling.logprobs else ()
        return Sampled(
            token,
            float(logits[token]) - normalizer,
            tuple(TokenLogprob(int(index), float(logits[index]) - normalizer) for index in top),
        )

    def _penalized(self, logits: NDArray[np.float32], history: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        penalty = np.float32(self.sampling.repetition_penalty)
        seen = np.asarray(history, np.int64) if penalty != 1 else np.empty(0, np.int64)
        if not seen.size:
            return logits
        if seen.min() < 0 or seen.max() >= logits.size:
            raise UserError(f"the history holds token {seen.max()} and the model knows {logits.size}; check the tokenizer")
        scores = logits.copy()
        scores[seen] = np.where(scores[seen] < 0, scores[seen] * penalty, scores[seen] / penalty)
        return scores

    def _draw(self, scores: NDArray[np.float32]) -> int:
        options = self.sampling
        with np.errstate(over="ignore"):  # a tiny temperature leaves -inf, which is what it means
            scaled = (scores - scores.max()) / np.float32(options.temperature)
        kept: NDArray[np.intp] | slice = slice(None)
        if 0 < options.top_k < scores.size:
            kept = _at_least(scaled, options.top_k)
        if options.top_p < 1:
            nucleus = _nucleus(scaled[kept], options.top_p)
            kept = nucleus if isinstance(kept, slice) else kept[nucleus]
        if options.min_p > 0:
            probable = np.flatnonzero(scaled[kept] >= math.log(options.min_p))
            kept = probable if isinstance(kept, slice) else kept[probable]
        drawn = _position(np.exp(scaled[kept]), 1 - self._random.random())
        return drawn if isinstance(kept, slice) else int(kept[drawn])


def best(values: NDArray[np.floating], count: int) -> NDArray[np.intp]:
    """Indices of the `count` highest `values` [n], highest first, the lower index first of equal ones."""
    found = _at_least(values, min(count, values.size))
    return found[np.argsort(-values[found], kind="stable")][:count]


def _at_least(values: NDArray[np.floating], count: int) -> NDArray[np.intp]:
    """Ascending indices of all values as high as the `count`-th highest.

    Not argpartition: which of equal values it puts first depends on the CPU.
    """
    return np.flatnonzero(values >= np.partition(values, -count)[-count])


def _nucleus(scaled: NDArray[np.float32], top_p: float) -> NDArray[np.intp]:
    """Ascending indices of the fewest most probable of softmax(scaled) that sum to `top_p`.

    Only as many are sorted as it takes: the head of a vocabulary of 128k is nearly always enough.
    """
    total = np.exp(scaled).sum(dtype=np.float64)
    count = min(_FIRST_CANDIDATES, scaled.size)
    while True:
        order = best(scaled, count)
        cumulative = np.exp(scaled[order]).astype(np.float64).cumsum()
        if count == scaled.size or cumulative[-1] >= top_p * total:
            return np.sort(order[: int(np.searchsorted(cumulative, top_p * total)) + 1])
        count = min(count * _CANDIDATE_GROWTH, scaled.size)


def _position(weights: NDArray[np.float32], fraction: float) -> int:
    """The first index at which the running sum of `weights` reaches `fraction`, in (0, 1], of the whole.

    By sums of blocks first: a running sum over 128k takes ten times as long. An index of weight 0 is never found.
    """
    starts = np.arange(0, weights.size, _BLOCK)
    blocks = np.add.reduceat(weights, starts, dtype=np.float64).cumsum()
    level = fraction * blocks[-1]
    block = int(np.searchsorted(blocks, level))
    inside = weights[starts[block] : starts[block] + _BLOCK].astype(np.float64).cumsum()
    rest = level - (blocks[block - 1] if block else 0)
    return int(starts[block] + np.searchsorted(inside, min(rest, inside[-1])))
