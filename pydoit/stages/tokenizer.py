"""tokenizer: the model's tokenizer as the artifact carries it; a GGUF file's vocabulary becomes a tokenizer.json."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.frozen import Frozen

TOOLS = ("tokenizers", "gguf")
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
)
READS = {"fetch": (*(f"model/{name}" for name in FILES), "model/*.gguf")}


class Spec(Frozen):
    """Where the tokenizer is."""

    source: str
    """The recipe's `model.source`."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write the tokenizer's files; none for a model without one."""
    folder = inputs["fetch"] / "model" if "fetch" in inputs else Path()
    if spec.source == "gguf":
        from pydoit.models.checkpoint import find_gguf
        from pydoit.models.gguf_tokenizer import write_tokenizer

        write_tokenizer(find_gguf(folder), out)
    else:
        for name in FILES:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, out / name)
    return {"files": sorted(path.name for path in out.iterdir())}
