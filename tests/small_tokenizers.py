"""Small tokenizers of the two kinds that language models use, trained in the test, and texts that are hard for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

TEXTS = [
    "", " ", "  two  spaces ", "\n\n\t tabs\tand\nlines \r\n", "Hello, world!", "The capital of France is Paris.",
    "def f(x):\n    return x ** 2  # square\n", "for (int i = 0; i < 10; ++i) { s += a[i]; }", "1234567890 3.14 1,000,000 0x1F",
    "naïve café Ünïcödé", "日本語のテキストです。", "Привет, как дела?", "مرحبا بالعالم", "हिन्दी में", "한국어 문장",
    "emoji 🙂👩‍👩‍👧‍👦🏳️‍🌈 end", "a\u0301 combining, \u200b zero width, \ufeff", "don't I'll we've THEY'RE", "\u2581 literal",
    "<0xE2> literal", "é", "🙂", " leading", "trailing ", "x" * 200, "\x00\x01\x7f", "ﬁ ligature ½ ² ①",
]  # fmt: skip


def byte_level(vocabulary: int = 400) -> Tokenizer:
    """Byte-level BPE as Llama 3, Qwen and SmolLM have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=CONTROL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens([AddedToken("<tool é>", special=False, normalized=False)])
    return tokenizer


def sentence_piece() -> Tokenizer:
    """SentencePiece BPE with byte fallback as Llama 2 and Mistral have it; few characters, so that bytes are used."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnoprstuwyTHP.,", "▁é"]
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("▁", "P"), ("a", "r"), ("i", "s"), ("▁", "a"), ("▁", "▁")]
    tokens += ["".join(pair) for pair in merges]
    model = models.BPE(
        {token: index for index, token in enumerate(dict.fromkeys(tokens))},
        merges,
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(Regex("▁"), " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer


def write(folder: Path, tokenizer: Tokenizer, config: dict[str, Any] | None = None, **files: object) -> Path:
    """An artifact's tokenizer folder; `files` by name without .json, text for chat_template."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config or {}), encoding="utf-8")
    for name, value in files.items():
        path = folder / ("chat_template.jinja" if name == "chat_template" else f"{name}.json")
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return folder
