"""Tokenizer folders: ids, text, special tokens, chat templates as transformers runs them, and what is wrong with files."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizers import CHAT_TEMPLATE, CONTROL, TEXTS, byte_level, sentence_piece, write
from tokenizers import Tokenizer as Inner
from tokenizers import decoders
from transformers.utils.chat_template_utils import render_jinja_template

from pydoit.errors import UserError
from pydoit.runtime.text.chat_template import ChatTemplate
from pydoit.runtime.text.tokenizer import Tokenizer

CONFIG = {"bos_token": "<|endoftext|>", "eos_token": {"content": "<|im_end|>", "lstrip": False}}
MESSAGES = [{"role": "system", "content": "Be <brief> & 'kind'."}, {"role": "user", "content": "Où est Paris?"}]
BYTE_LEVEL, SENTENCE_PIECE = byte_level(), sentence_piece()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, BYTE_LEVEL, CONFIG, chat_template=CHAT_TEMPLATE)


@pytest.mark.parametrize("inner", [BYTE_LEVEL, SENTENCE_PIECE], ids=["byte-level", "sentence-piece"])
def test_ids_and_text_are_those_of_the_library(inner: Inner, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, inner))
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == inner.encode(text).ids
        assert tokenizer.encode(text, special=False) == inner.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == inner.decode(ids)
        assert tokenizer.decode(ids).removeprefix(" ") == text.replace("▁", "▁" if inner is BYTE_LEVEL else " ").removeprefix(
            " "
        )


@given(st.text(max_size=40))
def test_every_text_survives(text: str) -> None:
    tokenizer = Tokenizer(fresh_byte_level(), {}, {}, None)
    assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == text


def fresh_byte_level() -> Inner:
    return Inner.from_str(BYTE_LEVEL.to_str())


def test_special_tokens(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    tokenizer = Tokenizer.load(folder)
    assert (tokenizer.bos, tokenizer.eos) == (0, frozenset({0, 2}))
    assert tokenizer.vocabulary == BYTE_LEVEL.get_vocab_size()
    assert tokenizer.decode([1, *tokenizer.encode("hi"), 2]) == "hi"
    assert tokenizer.decode([1, *tokenizer.encode("hi"), 2], skip_special=False) == "<|im_start|>hi<|im_end|>"
    assert tokenizer.encode(CONTROL[2]) == [2]
    assert tokenizer.decode(tokenizer.encode("a<tool é>b")) == "a<tool é>b"


def test_end_of_turn_tokens_are_found_without_a_generation_config(tmp_path: Path) -> None:
    assert Tokenizer.load(write(tmp_path, BYTE_LEVEL, {})).eos == {0, 2}
    assert Tokenizer.load(write(tmp_path, SENTENCE_PIECE, {"bos_token": "<s>", "eos_token": "</s>"})).eos == {2}


def test_chat_by_the_models_template(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    [expected], _ = render_jinja_template([MESSAGES], chat_template=CHAT_TEMPLATE, add_generation_prompt=True)
    assert tokenizer.has_chat_template
    assert tokenizer.chat_text(MESSAGES) == expected
    assert tokenizer.chat(MESSAGES) == BYTE_LEVEL.encode(expected, add_special_tokens=False).ids
    assert tokenizer.chat(MESSAGES)[0] == 1
    assert not tokenizer.chat_text(MESSAGES, add_generation_prompt=False).endswith("assistant\n")


@pytest.mark.parametrize("where", ["text", "named", "file"])
def test_template_in_the_config_or_in_its_own_file(where: str, tmp_path: Path) -> None:
    source = "{{ bos_token }}:{{ messages[0].content }}"
    value: Any = source if where == "text" else [{"name": "tool", "template": "x"}, {"name": "default", "template": source}]
    files = {"chat_template": source} if where == "file" else {}
    config = {**CONFIG, "chat_template": "overridden" if where == "file" else value}
    assert Tokenizer.load(write(tmp_path, BYTE_LEVEL, config, **files)).chat_text(MESSAGES) == "<|endoftext|>:" + str(
        MESSAGES[0]["content"]
    )


TEMPLATES = [
    "{% for m in messages %}\n  {% if loop.first %}{% continue %}{% endif %}\n{{ m | tojson }}{% break %}{% endfor %}",
    "{{ messages | tojson(indent=2) }} {{ tools is none }} {{ add_generation_prompt }}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }} {{ extra }}",
    "  {%- for m in messages -%} {% generation %}{{ m['content'].strip().upper() }}{% endgeneration %}\n{% endfor %}",
    "{%- macro show(m) -%}{{ m.role }}={{ m.content[:5] }};{%- endmacro -%}{% for m in messages %}{{ show(m) }}{% endfor %}",
]


@pytest.mark.parametrize("source", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
def test_templates_render_as_in_transformers(source: str, prompt: bool) -> None:
    [expected], _ = render_jinja_template([MESSAGES], chat_template=source, add_generation_prompt=prompt, extra="é")
    assert ChatTemplate(source, {}).render(MESSAGES, add_generation_prompt=prompt, extra="é") == expected


def test_date_of_a_template_can_be_fixed(tmp_path: Path) -> None:
    folder = write(tmp_path, BYTE_LEVEL, chat_template="{{ strftime_now('%d %b %Y') }}")
    now = datetime(2024, 7, 26, tzinfo=UTC)
    assert Tokenizer.load(folder, now=now).chat_text(MESSAGES) == "26 Jul 2024"
    assert Tokenizer.load(folder).chat_text(MESSAGES) != "26 Jul 2024"


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{% for %}", "no valid Jinja"),
        ("{{ raise_exception('roles must alternate') }}", "refuses these messages: roles must alternate"),
        ("{{ messages[0].content.nothing() }}", "refuses"),
        ("{{ messages[0].content + 1 }}", "refuses"),
        ("{{ ''.__class__.__mro__ }}", "refuses"),
        ("{{ messages.append(1) }}", "refuses"),
        ("{{ range(10**9) | list }}", "refuses"),
        ("{{ 'a' * 10**15 }}", "refuses"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "refuses"),
    ],
)
def test_faults_of_templates(source: str, fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        ChatTemplate(source, {}).render(MESSAGES)


def test_messages_without_a_role_are_refused() -> None:
    with pytest.raises(UserError, match=r"chat message is .*; give"):
        ChatTemplate("x", {}).render([{"content": "hi"}])


def test_no_chat_template(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, SENTENCE_PIECE))
    assert not tokenizer.has_chat_template
    with pytest.raises(UserError, match="no chat template; use a raw prompt"):
        tokenizer.chat(MESSAGES)


def test_tokenizer_of_another_model(folder: Path) -> None:
    size = Tokenizer.load(folder).vocabulary
    assert Tokenizer.load(folder, model_vocabulary=size + 64).vocabulary == size
    with pytest.raises(UserError, match=rf"ids go up to {size - 1} and the model knows {size - 1} tokens"):
        Tokenizer.load(folder, model_vocabulary=size - 1)
    with pytest.raises(UserError, match=f"token {size} is not in the tokenizer"):
        Tokenizer.load(folder).decode([size])
    with pytest.raises(UserError, match="token -1 is not"):
        Tokenizer.load(folder).decode([-1])


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("tokenizer.json", None, "there is no tokenizer"),
        ("tokenizer.json", "{", "this is no tokenizer"),
        ("tokenizer.json", '{"model": {}}', "this is no tokenizer"),
        ("tokenizer_config.json", "{", "this is no JSON"),
        ("tokenizer_config.json", "[]", "no JSON object"),
        ("tokenizer_config.json", '{"eos_token": "<nowhere>"}', "eos_token: '<nowhere>' is not in tokenizer.json"),
        ("generation_config.json", '{"eos_token_id": 123456}', "123456 is beyond"),
        ("chat_template.jinja", "\udcff", "no UTF-8 text"),
    ],
)
def test_faults_of_files(name: str, content: str | None, fault: str, folder: Path) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UserError, match=fault):
        Tokenizer.load(folder)


def test_decoders_that_cannot_be_streamed_are_refused(tmp_path: Path) -> None:
    inner = fresh_byte_level()
    inner.decoder = decoders.WordPiece()
    with pytest.raises(UserError, match="decoder WordPiece"):
        Tokenizer.load(write(tmp_path, inner))


def test_half_a_surrogate_pair_is_an_error(folder: Path) -> None:
    with pytest.raises(UserError, match="no valid Unicode"):
        Tokenizer.load(folder).encode("a\ud83d")


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path: Path) -> None:
    inner = fresh_byte_level()
    inner.enable_truncation(2)
    inner.enable_padding(length=8)
    assert len(Tokenizer.load(write(tmp_path, inner)).encode("one two three four five, zzzzzz")) > 8


def test_neither_torch_nor_transformers_is_imported(folder: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from pydoit.runtime.text.tokenizer import Tokenizer\n"
        "t = Tokenizer.load(Path(sys.argv[1])); t.chat([{'role': 'user', 'content': 'hi'}])\n"
        "print([m for m in ('torch', 'transformers', 'tvm', 'tvm_ffi', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
