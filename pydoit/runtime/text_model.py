"""Text from a language model: prompts or chats in, text out as it comes, one at a time or many together."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.runtime.language import LanguageModel, load_language_model
from pydoit.runtime.text.sampling import Sampled, Sampler, Sampling
from pydoit.runtime.text.stream import TextStream
from pydoit.runtime.text.tokenizer import Tokenizer

Prompt = str | Sequence[Mapping[str, str]]
"""A text, or the messages of a chat: {"role": "user", "content": "..."}."""
GREEDY = Sampling(temperature=0)


@dataclass
class Completion:
    """What a prompt was continued with."""

    prompt_tokens: int
    """Tokens of the prompt, with those of the chat template."""
    text: str = ""
    """The text without what ended it."""
    tokens: list[int] = field(default_factory=list)
    """Ids of the generated tokens, without the one that ends a text."""
    sampled: list[Sampled] = field(default_factory=list)
    """The same with their log-probabilities."""
    finish_reason: Literal["stop", "length"] | None = None
    """`stop`: the model ended the text or a stop string came; `length`: `max_tokens`, or the context or cache is full."""
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def prefill_rate(self) -> float:
        """Tokens of the prompt a second."""
        return self.prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Generated tokens a second; the first one comes from the prefill and is not counted."""
        return (len(self.sampled) - 1) / self.decode_seconds if self.decode_seconds and len(self.sampled) > 1 else 0.0

    def __str__(self) -> str:
        """One line of figures."""
        return (
            f"prefill {self.prompt_tokens} tokens, {self.prefill_rate:.1f} tokens/s; "
            f"decode {len(self.tokens)} tokens, {self.decode_rate:.1f} tokens/s"
        )


class Generation:
    """Iterate for pieces of text; `completion` holds all of it, also after an early end. One iteration only."""

    def __init__(self, model: TextModel, answer: _Answer) -> None:
        self._pieces = model._stream(answer)  # noqa: SLF001 - one unit with TextModel
        self.completion = answer.completion
        """Grows while the text comes."""

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def close(self) -> None:
        """End early; the sequence's place in the cache is free again."""
        self._pieces.close()

    def result(self) -> Completion:
        """Generate the rest and return all of it."""
        for _ in self._pieces:
            pass
        return self.completion


class TextModel:
    """A language model with its tokenizer. Not for several threads at once."""

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer) -> None:
        self.model = model
        self.tokenizer = tokenizer

    def generate(
        self, prompt: Prompt, *, sampling: Sampling = GREEDY, max_tokens: int = 256, stop: Sequence[str] = (), raw: bool = False
    ) -> Generation:
        """Continue a prompt; the work is done as the result is iterated.

        A text becomes the first message of a chat, by the model's chat template; with `raw` it is continued as it is.
        Raises UserError for a prompt that does not fit, now; when the cache fills up later, the text ends.
        """
        return Generation(self, self._answer(prompt, sampling, max_tokens, stop, raw=raw))

    def generate_batch(
        self, prompts: Sequence[Prompt], *, sampling: Sampling = GREEDY, max_tokens: int = 256, stop: Sequence[str] = (),
        raw: bool = False,
    ) -> list[Completion]:  # fmt: skip
        """Continue several prompts; as many as the cache has room for are decoded together, the others follow."""
        if isinstance(prompts, str):
            raise UserError("the prompts are one text; give a list of texts or chats")
        waiting = [self._answer(prompt, sampling, max_tokens, stop, raw=raw) for prompt in prompts]
        done = [answer.completion for answer in waiting]
        running: dict[int, _Answer] = {}
        try:
            while waiting or running:
                self._admit(waiting, running)
                started = time.perf_counter()
                full = [sequence for sequence, answer in running.items() if not self._has_room(sequence, answer)]
                for sequence in full:
                    running.pop(sequence).finish("length")
                    self.model.drop(sequence)
                if running:
                    logits = self.model.decode(list(running), [answer.last for answer in running.values()])
                    seconds = time.perf_counter() - started
                    for (sequence, answer), row in zip(list(running.items()), logits, strict=True):
                        answer.completion.decode_seconds += seconds
                        answer.take(row)
                        if answer.is_finished:
                            del running[sequence]
                            self.model.drop(sequence)
        finally:
            for sequence in running:
                self.model.drop(sequence)
        return done

    def _admit(self, waiting: list[_Answer], running: dict[int, _Answer]) -> None:
        """Prefill waiting prompts while there is room, each with its whole answer; at least one when nothing runs.

        Room for the rest of the answers that run already is kept, so that none is cut short for one that came later.
        """
        while waiting and (not running or len(self.model.pool.sequences) < self.model.sequences):
            answer = waiting[0]
            promised = sum(self._lacking(other, sequence) for sequence, other in running.items())
            if running and promised + self._lacking(answer) > self.model.pool.free_tokens:
                return
            waiting.pop(0)
            sequence = self.model.add()
            try:
                answer.prefill(self.model, sequence)
            except BaseException:
                self.model.drop(sequence)
                raise
            if answer.is_finished:
                self.model.drop(sequence)
            else:
                running[sequence] = answer

    def _lacking(self, answer: _Answer, sequence: int | None = None) -> int:
        """Tokens of whole pages that an answer may need beyond those that its sequence holds."""
        pool, longest = self.model.pool, len(answer.prompt) + answer.max_tokens
        if pool.window is not None:
            longest = min(longest, pool.window + self.model.chunk + pool.page_size)
        held = 0 if sequence is None else len(pool.table(sequence))
        return max(-(-longest // pool.page_size) - held, 0) * pool.page_size

    def _stream(self, answer: _Answer) -> Generator[str, None, None]:
        sequence = self.model.add()
        try:
            yield from filter(None, [answer.prefill(self.model, sequence)])
            while not answer.is_finished:
                if not self._has_room(sequence, answer):
                    answer.finish("length")
                    break
                started = time.perf_counter()
                logits = self.model.decode([sequence], [answer.last])[0]
                piece = answer.take(logits)
                answer.completion.decode_seconds += time.perf_counter() - started
                if piece:
                    yield piece
            if answer.rest:
                yield answer.rest
        finally:
            self.model.drop(sequence)

    def _has_room(self, sequence: int, answer: _Answer) -> bool:
        """Whether one more token fits the model's context and the cache."""
        length, pool = self.model.length(sequence), self.model.pool
        in_page = length % pool.page_size > 0
        return length < self.model.context and (in_page or pool.free_tokens > 0 or pool.window is not None)

    def _answer(self, prompt: Prompt, sampling: Sampling, max_tokens: int, stop: Sequence[str], *, raw: bool) -> _Answer:
        if not isinstance(max_tokens, int) or max_tokens < 1:
            raise UserError(f"max_tokens is {max_tokens!r}; give a whole number of at least 1")
        if not isinstance(prompt, str) and (raw or not isinstance(prompt, Sequence) or not prompt):
            kind = "a raw prompt is text" if raw else "a prompt is text, or the messages of a chat"
            raise UserError(f"the prompt is {str(prompt)[:60]!r}; {kind}")
        if isinstance(prompt, str) and not raw:
            prompt = [{"role": "user", "content": prompt}]
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else self.tokenizer.chat(prompt)
        if not ids:
            raise UserError("the prompt has no tokens; give some text")
        if len(ids) > self.model.longest:
            raise UserError(
                f"the prompt has {len(ids)} tokens; the model's context is {self.model.context} and its cache holds "
                f"{self.model.capacity}; shorten it, or build with more kv_cache.tokens"
            )
        return _Answer(ids, Sampler(sampling), self.tokenizer.stream(stop, begins=not raw), self.tokenizer, max_tokens)


class _Answer:
    """One prompt and its completion so far."""

    def __init__(self, prompt: list[int], sampler: Sampler, stream: TextStream, tokenizer: Tokenizer, max_tokens: int) -> None:
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.completion = Completion(len(prompt))
        self.rest = ""
        """Text that was held back until the end was known."""
        self._sampler, self._text, self._tokenizer = sampler, stream, tokenizer

    @property
    def is_finished(self) -> bool:
        return self.completion.finish_reason is not None

    @property
    def last(self) -> int:
        """The token that the model has not seen yet."""
        return self.completion.tokens[-1]

    def prefill(self, model: LanguageModel, sequence: int) -> str:
        """Give the prompt to the model; the first piece of text, perhaps empty."""
        started = time.perf_counter()
        logits = model.prefill(sequence, self.prompt)
        self.completion.prefill_seconds = time.perf_counter() - started
        return self.take(logits)

    def take(self, logits: NDArray[np.float32]) -> str:
        """Choose the next token; the text that can be shown now."""
        completion = self.completion
        sampled = self._sampler.next(self._known(logits), [*self.prompt, *completion.tokens])
        completion.sampled.append(sampled)
        if sampled.token in self._tokenizer.eos:
            self.finish("stop")
            return ""
        completion.tokens.append(sampled.token)
        piece = self._text.push(sampled.token)
        completion.text += piece
        if self._text.stopped is not None:
            completion.finish_reason = "stop"
        elif len(completion.tokens) >= self.max_tokens:
            self.finish("length")
        return piece

    def _known(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Those of tokens that stand for something: rows that pad an embedding are never drawn."""
        known = logits[: self._tokenizer.vocabulary]
        if self._tokenizer.absent:
            known = known.copy()
            known[list(self._tokenizer.absent)] = -np.inf
        return known

    def finish(self, reason: Literal["stop", "length"]) -> None:
        """End; what was held back is text after all."""
        self.rest = self._text.finish()
        self.completion.text += self.rest
        self.completion.finish_reason = "stop" if self._text.stopped is not None else reason


def load_text_model(path: Path | str, threads: int | None = None) -> TextModel:
    """Load an artifact folder that holds a language model and its tokenizer; needs `tokenizers` and `jinja2`.

    Raises UserError where it is none, or lacks its weights or its tokenizer.
    """
    model = load_language_model(path, threads)
    return TextModel(model, Tokenizer.load(Path(path) / "tokenizer", model_vocabulary=model.vocabulary))
