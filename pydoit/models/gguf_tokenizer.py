"""A GGUF file's vocabulary as the files that transformers models carry: tokenizer.json and its companions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pydoit.errors import UserError
from pydoit.models.gguf_file import GgufFile
from pydoit.nearest import nearest

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
PATTERNS: dict[str, str | None] = {
    "default": None, "gpt-2": None, "gpt2": None, "smollm": None,
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"),
                    rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}"),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_REST}"),
    "tekken": rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
              r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}  # fmt: skip
"""tokenizer.ggml.pre -> how text is cut before merges (None: as GPT-2 does); the models' own tokenizer.json say the same."""
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
_NFC = ("qwen2", "deepseek-r1-qwen")
_SPACE = "\u2581"
_ENDS = ("eos", "eot", "eom")
_SPECIAL = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


def write_tokenizer(path: Path, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and generation_config.json of a GGUF file into `folder`.

    Raises UserError for a kind of tokenizer that is not known, and for metadata that contradicts itself.
    """
    file = GgufFile(path)
    vocabulary = Vocabulary(file)
    (folder / "tokenizer.json").write_text(vocabulary.tokenizer().to_str(pretty=False), encoding="utf-8")
    _write(folder / "tokenizer_config.json", vocabulary.config())
    _write(folder / "generation_config.json", vocabulary.generation())


class Vocabulary:
    """The tokenizer's metadata, checked."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self.model = file.required("tokenizer.ggml.model", str)
        kinds = ("gpt2", "llama")
        if self.model not in kinds:
            raise UserError(f"{file.path}: a {self.model!r} tokenizer is not supported; {nearest(self.model, list(kinds))}")
        self.tokens: list[str] = file.required("tokenizer.ggml.tokens", list)
        types = file.value("tokenizer.ggml.token_type", np.ndarray)
        self.types = [_NORMAL] * len(self.tokens) if types is None else [int(kind) for kind in types]
        rows = file.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in file.tensors else len(self.tokens)
        if len(self.tokens) > rows:
            raise UserError(f"{file.path}: {len(self.tokens)} tokens have an embedding of {rows} rows; convert the model again")
        if len(self.types) != len(self.tokens):
            raise UserError(f"{file.path}: {len(self.tokens)} tokens have {len(self.types)} types; convert the model again")
        self.pre = file.value("tokenizer.ggml.pre", str, "default")
        if self.model == "gpt2" and self.pre not in PATTERNS:
            raise UserError(
                f"{file.path}: tokenizer.ggml.pre {self.pre!r} is not supported; {nearest(self.pre, list(PATTERNS))}"
            )
        self.ids: dict[str, int] = {}
        for index, token in enumerate(self.tokens):
            self.ids.setdefault(token, index)

    def tokenizer(self) -> Any:
        """A tokenizers.Tokenizer."""
        from tokenizers import AddedToken, Tokenizer

        made = Tokenizer(self._merging())
        self._dress(made)
        for index, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True)):
            if kind in (_CONTROL, _USER_DEFINED, _UNKNOWN) and self.ids[token] == index:
                special = kind != _USER_DEFINED
                added = AddedToken(token, special=special, normalized=False)
                (made.add_special_tokens if special else made.add_tokens)([added])
        processor = self._template()
        if processor is not None:
            made.post_processor = processor
        return made

    def config(self) -> dict[str, Any]:
        """The values of tokenizer_config.json."""
        named = {key: self._special(name) for name, key in _SPECIAL.items()}
        return {
            "add_bos_token": self._adds("bos"),
            "add_eos_token": self._adds("eos"),
            "chat_template": self._file.value("tokenizer.chat_template", str),
            **{key: self.tokens[index] for key, index in named.items() if index is not None},
        }

    def generation(self) -> dict[str, Any]:
        """The values of generation_config.json."""
        ends = sorted({index for index in map(self._special, _ENDS) if index is not None})
        return {"bos_token_id": self._special("bos"), "eos_token_id": ends}

    def _merging(self) -> Any:
        from tokenizers.models import BPE

        if self.model == "llama":
            unknown = self._special("unknown")
            return BPE(
                self.ids, self._merges_by_score(), unk_token=None if unknown is None else self.tokens[unknown],
                fuse_unk=True, byte_fallback=_BYTE in self.types,
            )  # fmt: skip
        lines = self._file.required("tokenizer.ggml.merges", list)
        merges = [tuple(line.split(" ")) for line in lines]
        faulty = next((line for line, pair in zip(lines, merges, strict=True) if len(pair) != 2 or "".join(pair) not in self.ids
                       or pair[0] not in self.ids or pair[1] not in self.ids), None)  # fmt: skip
        if faulty is not None:
            raise UserError(f"{self._file.path}: the merge {faulty!r} is of tokens that are not there; convert the model again")
        return BPE(self.ids, merges, ignore_merges=self.pre in _LLAMA3)

    def _merges_by_score(self) -> list[tuple[str, str]]:
        """SentencePiece merges what gives the token with the best score; ties go to the longer left, then right part."""
        scores = self._file.required("tokenizer.ggml.scores", np.ndarray)
        if len(scores) != len(self.tokens):
            raise UserError(f"{self._file.path}: {len(self.tokens)} tokens have {len(scores)} scores; convert the model again")
        found: list[tuple[float, int, int, str, str]] = []
        for index, token in enumerate(self.tokens):
            if self.types[index] != _NORMAL:
                continue
            for cut in range(1, len(token)):
                left, right = token[:cut], token[cut:]
                if left in self.ids and right in self.ids:
                    found.append((-float(scores[index]), -len(left), -len(right), left, right))
        found.sort(key=lambda item: item[:3])
        return [(left, right) for *_, left, right in found]

    def _dress(self, made: Any) -> None:
        """How text is cut before merges, and put together after them."""
        from tokenizers import Regex, decoders, normalizers, pre_tokenizers

        if self.model == "llama":
            prefix = self._file.value("tokenizer.ggml.add_space_prefix", bool, True)
            steps = [normalizers.Prepend(_SPACE)] if prefix else []
            made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
            last = [decoders.Strip(" ", 1, 0)] if prefix else []
            made.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *last])
            return
        pattern = PATTERNS[self.pre]
        bytes_as_letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
        if self.pre == "smollm":
            made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_as_letters])
        elif pattern is None:
            made.pre_tokenizer = bytes_as_letters
        else:
            made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), bytes_as_letters])
        if self.pre in _NFC:
            made.normalizer = normalizers.NFC()
        made.decoder = decoders.ByteLevel()

    def _template(self) -> Any:
        from tokenizers.processors import TemplateProcessing

        ends = {name: self._special(name) for name in ("bos", "eos") if self._adds(name)}
        known = {name: index for name, index in ends.items() if index is not None}
        if not known:
            return None
        parts = [self.tokens[known["bos"]]] if "bos" in known else []
        parts += ["$A"] + ([self.tokens[known["eos"]]] if "eos" in known else [])
        pair = [f"{part}:0" for part in parts] + [f"{'$B' if part == '$A' else part}:1" for part in parts]
        return TemplateProcessing(parts, pair, [(self.tokens[index], index) for index in known.values()])

    def _adds(self, name: str) -> bool:
        """Whether the tokenizer puts the token around a text; files of older converters do not say."""
        default = name == "bos" and (self.model == "llama" or self.pre in _LLAMA3)
        return bool(self._file.value(f"tokenizer.ggml.add_{name}_token", bool, default))

    def _special(self, name: str) -> int | None:
        index: int | None = self._file.value(f"tokenizer.ggml.{name}_token_id", int)
        if index is not None and not 0 <= index < len(self.tokens):
            where = f"{self._file.path}: tokenizer.ggml.{name}_token_id"
            raise UserError(f"{where} is {index}, of {len(self.tokens)} tokens; convert the model again")
        return index


def _write(path: Path, values: dict[str, Any]) -> None:
    kept = {key: value for key, value in values.items() if value is not None}
    path.write_text(json.dumps(kept, ensure_ascii=False, indent=2, sort_keys=True) + "\n", encoding="utf-8")
