"""A workspace for tests of the lock file: recipes of every kind, and stand-ins for tools of other versions."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from conftest import TestWorkspace, make_workspace

import pydoit

TINY = """\
extends = ["base/common.toml"]
schema = 1
description = "a tiny net"

[model]
source = "torch"
path = "models"
factory = "recipes.tiny_net:build"

[model.inputs.input]
shape = [1, 3, 8, 8]

[tune]
records = "recipes/tuning/tiny.json"

[verify]
samples = 2
dataset = "data/inputs.npz"

[profile]
warmup = 1
repeat = 3

[variant.long.profile]
repeat = 5
"""
COMMON = '[passes]\npreset = "O1"\n'
PASSES = """\
schema = 1
[model]
source = "torch"
path = "models"
factory = "recipes.tiny_net:build"
inputs.input.shape = [1, 3, 8, 8]
[passes]
order = ["FoldConstant", "recipes.own_pass:Nothing", "PluginPass", "LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"]
"""
WHEEL = f"""\
schema = 1
[model]
source = "onnx"
path = "pypi:some-model==1.0#some_model/net.onnx"
sha256 = "{"a" * 64}"
inputs.input.shape = [1, 3]
"""
HUB = f"""\
schema = 1
[model]
source = "transformers"
path = "hf:some/llama"
revision = "{"1" * 40}"
config = "recipes/models/config.json"
[model.kv_cache]
tokens = 64
sequences = 2
page_size = 16
prefill_chunk = 16
[target]
kind = "cuda"
arch = "sm_90"
precision = "bfloat16"
"""
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
          "num_attention_heads": 4, "num_hidden_layers": 1, "num_key_value_heads": 2, "vocab_size": 128,
          "rms_norm_eps": 1e-6, "rope_theta": 1e4, "max_position_embeddings": 64, "hidden_act": "silu"}  # fmt: skip
RECORDS = '{"schema": 1, "target": {"arch": "x86-64-v3", "threads": 2}, "records": [\n\n]}\n'
OWN_PASS = '''\
"""A pass of the workspace."""


class Nothing:
    def __call__(self, module):
        return module
'''
PLUGIN = """\
from pydoit.passes import PassInfo

INFO = PassInfo("Do nothing.", "plugin_pass:Nothing")
"""


@dataclass
class Locked:
    """The workspace, and variables under which the commands of a test run."""

    workspace: TestWorkspace
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.workspace.root

    def doit(self, *arguments: str, cwd: str = ".") -> subprocess.CompletedProcess[str]:
        return self.workspace.doit(*arguments, cwd=cwd, **self.variables)

    def write(self, name: str, text: str) -> Path:
        return self.workspace.write(name, text)

    def edit(self, name: str, old: str, new: str) -> None:
        self.workspace.edit(name, old, new)

    def flip(self, name: str, at: int = -2) -> None:
        """Change one byte of a file."""
        data = bytearray((self.root / name).read_bytes())
        data[at] ^= 0x40
        (self.root / name).write_bytes(data)

    def fake(self, name: str) -> Path:
        """A folder of stand-ins outside the workspace."""
        folder = self.root.parent / "fakes" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def prepend(self, variable: str, folder: Path, default: str) -> None:
        """Let a folder come first on a search path."""
        self.variables[variable] = f"{folder}:{self.variables.get(variable, default)}".rstrip(":")

    def distribution(self, name: str, version: str) -> Path:
        """Let a distribution of this version come first; the folder of its metadata, beside which its modules lie."""
        folder = self.fake(f"{name}-{version}")
        information = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        self.prepend("PYTHONPATH", folder, "")
        return information

    def program(self, name: str, *cases: str) -> None:
        """Let a program on PATH print something else: shell `case` branches over all its arguments."""
        path = self.fake(f"bin-{name}") / name
        path.write_text('#!/bin/sh\ncase "$*" in\n' + "\n".join(cases) + "\nesac\n")
        path.chmod(0o755)
        self.prepend("PATH", path.parent, "/usr/local/bin:/usr/bin:/bin")

    def own_code(self, change: Callable[[Path], object]) -> None:
        """Run a changed copy of this package."""
        folder = self.fake("own")
        source = Path(pydoit.__file__).parent
        shutil.copytree(source, folder / "pydoit", ignore=shutil.ignore_patterns("__pycache__"))
        change(folder / "pydoit")
        self.prepend("PYTHONPATH", folder, "")

    def toolkit(self, nvcc: str, ptxas: str) -> None:
        """Let CUDA's toolkit be one whose tools say these releases."""
        folder = self.fake(f"cuda-{nvcc}-{ptxas}")
        (folder / "bin").mkdir()
        (folder / "include").mkdir()
        (folder / "include" / "cuda_runtime.h").touch()
        for name, release in (("nvcc", nvcc), ("ptxas", ptxas)):
            (folder / "bin" / name).write_text(f"#!/bin/sh\necho release {release}\n")
            (folder / "bin" / name).chmod(0o755)
        self.variables["CUDA_HOME"] = str(folder)


def make_locked(folder: Path) -> Locked:
    """Recipes tiny (with a variant), passes, wheel and hub; nothing is locked yet."""
    locked = Locked(make_workspace(folder))
    for name, text in (("tiny", TINY), ("base/common", COMMON), ("passes", PASSES), ("wheel", WHEEL), ("hub", HUB)):
        locked.write(f"recipes/{name}.toml", text)
    locked.write("recipes/tuning/tiny.json", RECORDS)
    locked.write("recipes/own_pass.py", OWN_PASS)
    locked.write("recipes/models/config.json", json.dumps(CONFIG))
    locked.write("data/inputs.npz", "any bytes")
    locked.write("models/notes.md", "where the weights come from")
    locked.write("recipes/installed.toml", PASSES.replace("recipes.own_pass:", "pass_package:").replace('"PluginPass", ', ""))
    information = locked.distribution("pass-package", "1.0")
    (information.parent / "pass_package.py").write_text(OWN_PASS)
    (information / "top_level.txt").write_text("pass_package\n")
    information = locked.distribution("own-plugin", "1.0")
    (information.parent / "plugin_pass.py").write_text(PLUGIN)
    (information / "entry_points.txt").write_text("[modelbuild.passes]\nPluginPass = plugin_pass:INFO\n")
    locked.toolkit("13.0", "13.0")
    return locked
