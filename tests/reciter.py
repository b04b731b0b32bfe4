"""A small Llama that recites one text, so that what a language model says is known beforehand, token by token.

Each token of the text has one successor: the head's row of a token is the embedding of the one before it. Attention and
feed-forward layers add little, so that they are computed but do not change which token is the likeliest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import small_tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tests.conftest import TestWorkspace
from tests.language import CACHE, write_checkpoint

TEXT = "Hello, world! \U0001f9ffThe capital"
"""No two of its tokens are equal; the symbol is three tokens."""
END = "<|im_end|>"
CONFIG = {"bos_token": "<|endoftext|>", "eos_token": END}
RECIPE = """\
schema = 1

[model]
source = "transformers"
path = "models/reciter"

[model.kv_cache]
tokens = {tokens}
sequences = {sequences}
page_size = {page_size}
prefill_chunk = {prefill_chunk}

[target]
threads = 1
"""


def tokenizer() -> Tokenizer:
    """The reciter's own."""
    made: Tokenizer = small_tokenizers.byte_level()
    return made


def write_reciter(folder: Path, **config: Any) -> Path:
    """A transformers folder with weights and tokenizer; its vocabulary is odd and larger than the tokenizer's."""
    inner = tokenizer()
    write_checkpoint(folder, "llama", **{"vocab_size": inner.get_vocab_size() + 2, **config})
    weights = load_file(folder / "model.safetensors")
    for name, value in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            value.mul_(0.02)
    embedding = weights["model.embed_tokens.weight"]
    torch.manual_seed(1)
    embedding.copy_(torch.nn.functional.normalize(torch.randn_like(embedding), dim=1))
    order = [inner.token_to_id("Ċ"), *inner.encode(TEXT).ids, inner.token_to_id(END)]
    assert len(set(order)) == len(order)
    head = weights["lm_head.weight"]
    head.copy_(torch.nn.functional.normalize(torch.randn_like(head), dim=1))
    head[order[1:]] = embedding[order[:-1]]
    weights["model.norm.weight"].fill_(1)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    small_tokenizers.write(folder, inner, CONFIG, chat_template=small_tokenizers.CHAT_TEMPLATE)
    return folder


def make_reciter_workspace(folder: Path, **cache: int) -> TestWorkspace:
    """A workspace with the recipe `reciter` and a broken one, `hollow`, whose weights are missing."""
    workspace = TestWorkspace(folder / "workspace", folder / "cache")
    workspace.write("modelbuild.toml", 'schema = 1\ndefault = ["reciter"]\n')
    workspace.write("pyproject.toml", '[tool.doit]\nloader = "modelbuild"\n')
    recipe = RECIPE.format(**{**CACHE, **cache})
    workspace.write("recipes/reciter.toml", recipe)
    workspace.write("recipes/hollow.toml", recipe.replace("models/reciter", "models/hollow"))
    model = write_reciter(workspace.root / "models/reciter")
    workspace.write("models/hollow/config.json", (model / "config.json").read_text())
    return workspace
