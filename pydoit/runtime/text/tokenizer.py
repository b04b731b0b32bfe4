"""An artifact's tokenizer: text to ids and back, its special tokens and its chat template; neither torch nor transformers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pydoit.errors import UserError
from pydoit.runtime.text.chat_template import ChatTemplate
from pydoit.runtime.text.pieces import Pieces
from pydoit.runtime.text.stream import Detokenizer, TextStream

MAX_VOCABULARY = 2**24
END_OF_TURN = frozenset({
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<|eot|>",
    "<|end_of_turn|>", "<EOT>",
})  # fmt: skip
"""Special tokens that end an answer wherever they are in a vocabulary, as llama.cpp has it; files often name but one."""


class Tokenizer:
    """The tokenizer of a language model; make it by `Tokenizer.load`."""

    def __init__(
        self, tokenizer: Any, config: Mapping[str, Any], generation: Mapping[str, Any], template: ChatTemplate | None
    ) -> None:
        """`tokenizer` is a tokenizers.Tokenizer; `config` and `generation` hold what the two JSON files hold."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer, self._template = tokenizer, template
        self.pieces = Pieces(tokenizer)
        added = tokenizer.get_added_tokens_decoder()
        if max([*added, *tokenizer.get_vocab().values()], default=0) >= MAX_VOCABULARY:
            raise UserError(f"the tokenizer has ids of {MAX_VOCABULARY:,} and more; take the model's own file")
        self.vocabulary = 1 + max([*added, *tokenizer.get_vocab(with_added_tokens=False).values()], default=-1)
        """The highest id and one; a model's embedding may have more rows."""
        self.absent = tuple(sorted({*range(self.vocabulary)} - {*added, *tokenizer.get_vocab().values()}))
        """Ids below `vocabulary` that stand for nothing."""
        self.bos: int | None = self._special(config, "bos_token")
        """Id of the token that begins a text, or None."""
        ends = {index for index, token in added.items() if token.special and token.content in END_OF_TURN}
        ends |= set(_ids(generation.get("eos_token_id"))) | {self._special(config, "eos_token")}
        self.eos = frozenset(end for end in ends if end is not None)
        """Ids of all tokens that end a text or an answer."""

    @classmethod
    def load(cls, folder: Path, *, model_vocabulary: int | None = None, now: datetime | None = None) -> Tokenizer:
        """From tokenizer.json and, where present, tokenizer_config.json, chat_template.jinja, generation_config.json.

        `model_vocabulary` is the number of tokens that the model knows (rows of its embedding); `now` fixes the date
        that a chat template prints. Raises UserError if a file is missing or wrong or does not fit the model.
        """
        import tokenizers

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise UserError(f"{path}: there is no tokenizer; build the recipe again from a model that has one")
        try:
            inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises plain Exception
            raise UserError(f"{path}: this is no tokenizer ({error}); take the model's own file") from error
        config = _read(folder / "tokenizer_config.json")
        template = _chat_template(folder, config)
        names = {name: _content(value) for name, value in config.items() if name.endswith("_token")}
        special = {name: text for name, text in names.items() if text is not None}
        made = cls(
            inner, config, _read(folder / "generation_config.json"), ChatTemplate(template, special, now) if template else None
        )
        made._check(path, model_vocabulary)
        return made

    @property
    def has_chat_template(self) -> bool:
        """True if the model says how messages are written."""
        return self._template is not None

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of `text`; `special` adds what the model expects around a text (most often the token that begins it).

        Control tokens written in `text` become those tokens, as in transformers.
        """
        try:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        except (TypeError, UnicodeError) as error:
            raise UserError("the text is no valid Unicode (it holds half of a surrogate pair); clean it") from error
        return ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids` from its start; bytes that are no characters become U+FFFD."""
        detokenizer = Detokenizer(self.pieces, begins=True, skip_special=skip_special)
        return "".join([detokenizer.push(token) for token in ids]) + detokenizer.finish()

    def stream(self, stop: Sequence[str] = (), *, begins: bool = False) -> TextStream:
        """Decodes token by token; `begins` for an answer in a chat, not for text that goes on after a prompt."""
        return TextStream(self.pieces, stop, begins=begins)

    def chat_text(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any) -> str:
        """`messages` ({"role": ..., "content": ...}) by the model's chat template; UserError if it has none."""
        if self._template is None:
            raise UserError("the model has no chat template; use a raw prompt (`--raw`)")
        return self._template.render(messages, add_generation_prompt=add_generation_prompt, **variables)

    def chat(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any) -> list[int]:
        """Ids of `chat_text`, to which nothing is added: the template writes the token that begins a text itself."""
        return self.encode(self.chat_text(messages, add_generation_prompt=add_generation_prompt, **variables), special=False)

    def _special(self, config: Mapping[str, Any], name: str) -> int | None:
        content = _content(config.get(name))
        if content is None:
            return None
        token: int | None = self._tokenizer.token_to_id(content)
        if token is None:
            raise UserError(f"tokenizer_config.json: {name}: {content!r} is not in tokenizer.json; take both from one model")
        return token

    def _check(self, path: Path, model_vocabulary: int | None) -> None:
        known = self.vocabulary if model_vocabulary is None else model_vocabulary
        if self.vocabulary > known:
            raise UserError(
                f"{path}: ids go up to {self.vocabulary - 1} and the model knows {known} tokens; "
                "take the tokenizer of this model"
            )
        unknown = sorted(end for end in self.eos if not 0 <= end < known)
        if unknown:
            raise UserError(
                f"{path.parent / 'generation_config.json'}: eos_token_id: {unknown[0]} is beyond the {known} tokens; "
                "take the file of this model"
            )


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: this is no JSON ({error}); take the model's own file") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: this is no JSON object; take the model's own file")
    return value


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: this is no UTF-8 text; take the model's own file") from error
    template = config.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = [item for item in template if isinstance(item, dict) and item.get("name") == "default"]
        template = named[0].get("template") if named else None
    return template if isinstance(template, str) else None


def _content(value: Any) -> str | None:
    """A special token is written as text, or as an object with its flags."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None


def _ids(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else [item for item in value or [] if isinstance(item, int)]
