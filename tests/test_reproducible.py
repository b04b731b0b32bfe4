"""Two builds in different surroundings give the same bytes; where they do not, what differs is named."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import TestWorkspace, make_workspace
from locked import CONFIG, HUB
from safetensors.numpy import save_file

from pydoit import tools
from pydoit.reproduce.difference import differences
from pydoit.reproduce.surroundings import COPIED_BYTES, copy_workspace

SOURCE = """\
extern "C" __attribute__((noinline)) int add(int a, int b) { return a + b; }
extern "C" __attribute__((noinline)) int scale(int a) { return a * FACTOR; }
extern "C" int table[2] = {1, FACTOR};
"""
HOLDER = 'asm(".section .device,\\"a\\"\\n.incbin \\"INNER\\"\\n.previous"); extern "C" int holder() { return 1; }'
CUDA = HUB.replace('path = "hf:some/llama"\n', "").replace(f'revision = "{"1" * 40}"', 'weights = "random:0"')
BIGGER = {**CONFIG, "hidden_size": 256, "intermediate_size": 512, "vocab_size": 512}


def library(folder: Path, factor: int) -> Path:
    """A shared library whose function `scale` and object `table` hang on `factor`."""
    folder.mkdir()
    (folder / "lib.cc").write_text(SOURCE)
    command = ["g++", "-O1", "-shared", "-fPIC", "-Wl,--build-id=none", f"-DFACTOR={factor}", "lib.cc", "-o", "lib.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "lib.so"


def test_a_function_and_an_object_of_a_library_are_named(tmp_path: Path) -> None:
    first, second, same = (library(tmp_path / name, factor) for name, factor in (("a", 3), ("b", 5), ("c", 3)))
    assert differences(first, same) == []
    lines = differences(first, second)
    assert any(line.startswith("section .text: ") and "bytes differ" in line for line in lines)
    assert any(line.startswith("section .text: function scale: ") for line in lines)
    assert any(line.startswith("section .data: object table: 1 of 8 bytes differ") for line in lines)
    assert not any("add" in line for line in lines)


def test_device_code_inside_a_library_is_looked_into(tmp_path: Path) -> None:
    pair = []
    for name, factor in (("a", 3), ("b", 5)):
        inner = library(tmp_path / name, factor)
        (tmp_path / f"{name}.cc").write_text(HOLDER.replace("INNER", str(inner)))
        outer = tmp_path / f"{name}.so"
        subprocess.run(["g++", "-shared", "-fPIC", f"{name}.cc", "-o", str(outer)], cwd=tmp_path, check=True)
        pair.append(outer)
    assert any("section .device: device code 0: section .text: function scale: " in line for line in differences(*pair))


def test_a_function_that_only_one_library_has(tmp_path: Path) -> None:
    first = library(tmp_path / "a", 3)
    (tmp_path / "b").mkdir()
    second = tmp_path / "b/lib.so"
    (tmp_path / "b/lib.cc").write_text(SOURCE.replace("add", "sum"))
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-DFACTOR=3", "lib.cc", "-o", "lib.so"], cwd=tmp_path / "b", check=True)
    assert any(line.endswith("function sum: only one of the builds has it") for line in differences(first, second))


def test_a_tensor_a_key_and_a_byte_are_named(tmp_path: Path) -> None:
    for name, value in (("a", 1.0), ("b", 2.0)):
        save_file({"head": np.full(2, value, np.float32), "body": np.zeros(3)}, tmp_path / f"{name}.safetensors")
        (tmp_path / f"{name}.json").write_text(json.dumps({"target": {"threads": value}, "schema": 1}))
        (tmp_path / f"{name}.txt").write_text(f"value {value}")
    pairs = {kind: differences(tmp_path / f"a.{kind}", tmp_path / f"b.{kind}") for kind in ("safetensors", "json", "txt")}
    assert pairs["safetensors"] == ["tensor head: 4 of 8 bytes differ, the first at offset 0x2"]
    assert pairs["json"] == ["target.threads: 1.0 -> 2.0"]
    assert pairs["txt"] == ["1 of 9 bytes differ, the first at offset 0x6"]


def test_the_copy_of_a_workspace(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in (
        "recipes/a.toml",
        ".git/config",
        "artifacts/a/lib.so",
        "venv/pyvenv.cfg",
        "venv/lib/x.py",
        "x/__pycache__/y.pyc",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (root / "model.bin").write_bytes(b"\0" * (COPIED_BYTES + 1))
    copy_workspace(root, (root / "artifacts",), tmp_path / "copy")
    found = sorted(path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*") if path.is_file())
    assert found == ["model.bin", "recipes/a.toml"]
    assert (tmp_path / "copy/model.bin").is_symlink()


def test_a_small_recipe_is_reproducible(workspace: TestWorkspace) -> None:
    done = workspace.doit("build", "tiny", "--check-reproducible")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(
        "tiny: reproducible, 3 files the same in two builds (folder, HOME, TZ, LANG, hash seed, umask, cores"
    )


@pytest.mark.skipif(tools.cuda_toolkit() is None, reason="needs nvcc")
def test_a_small_recipe_for_sm_90_is_reproducible(workspace: TestWorkspace) -> None:
    workspace.write("recipes/small.toml", CUDA)
    workspace.write("recipes/models/config.json", json.dumps(BIGGER))
    done = workspace.doit("build", "small", "--check-reproducible")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("small: reproducible, 3 files")


def test_what_is_not_reproducible_is_named(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    workspace.edit(
        "recipes/tiny_net.py", "    return net", "    net[3].bias.data += os.urandom(1)[0] + os.getpid()\n    return net"
    )
    workspace.edit("recipes/tiny_net.py", "from pathlib", "import os\nfrom pathlib")
    done = workspace.doit("build", "tiny", "--check-reproducible")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("tiny: not reproducible; first different in import (params.safetensors); both are kept in ")
    assert any(line.startswith("  weights/model.safetensors: tensor 3.bias: ") for line in lines)
    kept = workspace.root / "artifacts/.modelbuild/reproduce/tiny"
    assert sorted(os.listdir(kept)) == ["first", "second"]
    assert not list((workspace.cache / "tmp").iterdir())
