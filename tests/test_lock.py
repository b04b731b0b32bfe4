"""modelbuild.lock: every drift is refused by its name before anything runs, what does not matter is not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from locked import RECORDS, Locked, make_locked

Change = Callable[[Locked], object]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Locked:
    """A workspace with its lock file; nothing is built. Tests take copies."""
    locked = make_locked(tmp_path_factory.mktemp("locked"))
    done = locked.doit("lock")
    assert done.returncode == 0, done.stderr
    assert locked.doit("lock", "--check").stdout == ""
    return locked


@pytest.fixture
def locked(template: Locked, tmp_path: Path) -> Locked:
    """A copy of the template to change, with the same stand-ins."""
    shutil.copytree(template.root.parent, tmp_path, dirs_exist_ok=True)
    moved = {name: value.replace(str(template.root.parent), str(tmp_path)) for name, value in template.variables.items()}
    workspace = type(template.workspace)(tmp_path / "workspace", tmp_path / "cache")
    return Locked(workspace, moved)


def edit(name: str, old: str, new: str) -> Change:
    return lambda locked: locked.edit(name, old, new)


def variable(name: str, value: str) -> Change:
    return lambda locked: locked.variables.update({name: value})


def distribution(name: str) -> Change:
    return lambda locked: locked.distribution(name, "9.9.9")


def append(path: Path) -> None:
    path.write_text(path.read_text() + "\n# another line\n")


def llvm(locked: Locked) -> None:
    library = locked.fake("llvm") / "tvm" / "lib" / "libtvm_compiler.so"
    library.parent.mkdir(parents=True)
    (library.parents[1] / "__init__.py").touch()
    library.write_bytes(b"\0LLVM version 9.9.9\0")
    locked.prepend("PYTHONPATH", library.parents[2], "")


def new_package(locked: Locked) -> None:
    path = locked.fake("pass-package-1.0") / "pass_package-1.0.dist-info" / "METADATA"
    path.write_text(path.read_text().replace("1.0", "9.9.9"))


def new_plugin(locked: Locked) -> None:
    path = locked.fake("own-plugin-1.0") / "own_plugin-1.0.dist-info" / "METADATA"
    path.write_text(path.read_text().replace("1.0", "9.9.9"))


GCC = '"--version") echo "g++ 99.0";;'
LD = '"-Wl,--version") echo "GNU ld 99.0";;'

DRIFTS: dict[str, tuple[str, Change, str]] = {
    "weight byte": ("tiny", lambda it: it.flip("models/tiny.safetensors"), "sources.models/tiny.safetensors: "),
    "file of the model": ("tiny", lambda it: it.write("models/more.txt", "x"), "sources.models/more.txt: none -> "),
    "file lost": ("tiny", lambda it: (it.root / "models/notes.md").unlink(), "sources.models/notes.md: sha256:"),
    "revision": ("hub", edit("recipes/hub.toml", "1" * 40, "2" * 40), "sources.hf:some/llama: revision:1111"),
    "config": ("hub", edit("recipes/models/config.json", "128", "256"), "sources.recipes/models/config.json: "),
    "wheel's digest": ("wheel", edit("recipes/wheel.toml", "a" * 64, "b" * 64), "sources.pypi:some-model==1.0#"),
    "dataset": ("tiny", lambda it: it.write("data/inputs.npz", "other bytes"), "sources.data/inputs.npz: "),
    "record": ("tiny", lambda it: it.write("recipes/tuning/tiny.json", RECORDS.replace("2", "4")), "records.recipes/tuning/tiny.json: "),
    "records lost": ("tiny", lambda it: (it.root / "recipes/tuning/tiny.json").unlink(), "records.recipes/tuning/tiny.json: "),
    "recipe field": ("tiny", edit("recipes/tiny.toml", "samples = 2", "samples = 3"), "recipe.verify.samples: 2 -> 3"),
    "fragment": ("tiny", edit("recipes/base/common.toml", "O1", "O2"), "recipe.passes.preset: O1 -> O2"),
    "pass order": ("passes", edit("recipes/passes.toml", '"LegalizeOps", ', '"FoldConstant", "LegalizeOps", '), "recipe.passes.order[3]: nothing -> FoldConstant"),
    "gate": ("tiny", lambda it: append_gate(it), "recipe.gate"),
    "variant": ("tiny@long", edit("recipes/tiny.toml", "repeat = 5", "repeat = 6"), "recipe.profile.repeat: 5 -> 6"),
    "explicit arch": ("tiny", lambda it: it.write("recipes/base/common.toml", '[passes]\npreset = "O1"\n[target]\narch = "x86-64-v2"\n'), "recipe.target.arch: native -> x86-64-v2"),
    "factory": ("tiny", lambda it: append(it.root / "recipes/tiny_net.py"), "code.recipes/tiny_net.py: "),
    "what the factory imports": ("tiny", lambda it: append(it.root / "recipes/parts.py"), "code.recipes/parts.py: "),
    "pass of the workspace": ("passes", lambda it: append(it.root / "recipes/own_pass.py"), "code.recipes/own_pass.py: "),
    "pass of ours": ("tiny", lambda it: it.own_code(lambda own: append(own / "passes/fold_pad.py")), "toolchain.doit-modelbuild: "),
    "our version": ("tiny", lambda it: it.own_code(lambda own: (own / "__init__.py").write_text('"""x"""\n__version__ = "9.9.9"\n')), "toolchain.doit-modelbuild: "),
    "TVM": ("tiny", distribution("apache-tvm"), "toolchain.apache-tvm: 0."),
    "tvm-ffi": ("tiny", distribution("apache-tvm-ffi"), "toolchain.apache-tvm-ffi: 0."),
    "torch": ("tiny", distribution("torch"), "toolchain.torch: 2."),
    "Triton": ("hub", distribution("triton"), "toolchain.triton: "),
    "plugin's version": ("passes", new_plugin, "toolchain.own-plugin: 1.0 -> 9.9.9"),
    "package of a pass": ("installed", new_package, "toolchain.pass-package: 1.0 -> 9.9.9"),
    "LLVM": ("tiny", llvm, "toolchain.llvm: 2"),
    "compiler": ("tiny", lambda it: it.program("g++", GCC, '*) exec /usr/bin/g++ "$@";;'), "toolchain.c++: g++ ("),
    "linker": ("tiny", lambda it: it.program("g++", LD, '*) exec /usr/bin/g++ "$@";;'), "toolchain.linker: GNU ld ("),
    "nvcc": ("hub", lambda it: it.toolkit("12.9", "13.0"), "toolchain.nvcc: release 13.0 -> release 12.9"),
    "ptxas": ("hub", lambda it: it.toolkit("13.0", "12.9"), "toolchain.ptxas: release 13.0 -> release 12.9"),
    "compiler's flags": ("tiny", variable("CXXFLAGS", "-O3"), "environment.CXXFLAGS: none -> -O3"),
    "linker's flags": ("tiny", variable("LDFLAGS", "-s"), "environment.LDFLAGS: none -> -s"),
    "Triton's rounding": ("hub", variable("TRITON_DEFAULT_FP_FUSION", "0"), "environment.TRITON_DEFAULT_FP_FUSION: "),
}  # fmt: skip


def append_gate(locked: Locked) -> None:
    path = locked.root / "recipes/tiny.toml"
    path.write_text(path.read_text() + '\n[[gate]]\nmetric = "verify.cosine"\nmin = 0.9\n')


@pytest.mark.parametrize("name", DRIFTS)
def test_a_drift_is_refused_by_its_name(locked: Locked, name: str) -> None:
    recipe, change, words = DRIFTS[name]
    change(locked)
    done = locked.doit("build", recipe, "--locked")
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
    assert any(line.startswith(f"{recipe}: {words}") for line in lines), done.stderr
    assert all(" -> " in line and "doit lock" in line for line in lines)
    assert not (locked.root / "artifacts" / recipe / "report.json").exists()  # nothing ran


def touch(locked: Locked) -> None:
    for path in locked.root.rglob("*"):
        os.utime(path, (1e9, 1e9))


def reorder(locked: Locked) -> None:
    path = locked.root / "recipes/tiny.toml"
    head, *sections = path.read_text().split("\n\n")
    path.write_text("\n\n".join(["\n".join(reversed(head.splitlines())), *reversed(sections)]))


def move(locked: Locked) -> None:
    target = locked.root.parent / "another" / "place"
    target.parent.mkdir()
    shutil.move(locked.root, target)
    locked.workspace.root = target


def inline_fragment(locked: Locked) -> None:
    locked.edit("recipes/tiny.toml", 'extends = ["base/common.toml"]\n', "")
    path = locked.root / "recipes/tiny.toml"
    path.write_text(path.read_text() + '\n[passes]\npreset = "O1"\n')


IRRELEVANT: dict[str, Change] = {
    "comments": lambda it: append(it.root / "recipes/tiny.toml"),
    "order of keys": reorder,
    "file times": touch,
    "another checkout path": move,
    "HOME": lambda it: it.variables.update(HOME=str(it.root.parent)),
    "zone and language": lambda it: it.variables.update(TZ="Asia/Tokyo", LANG="tr_TR.UTF-8", LC_ALL="C"),
    "hash seed": variable("PYTHONHASHSEED", "77"),
    "variable that changes nothing": variable("SOME_VARIABLE", "1"),
    "another recipe": lambda it: it.edit("recipes/wheel.toml", "a" * 64, "b" * 64),
    "broken recipe": lambda it: it.write("recipes/broken.toml", "schema = 1\nnonsense = 1\n"),
    "unrelated file": lambda it: it.write("notes.txt", "x"),
    "description": edit("recipes/tiny.toml", "a tiny net", "the net"),
    "default written out": edit("recipes/tiny.toml", "samples = 2", "samples = 2\nseed = 0"),
    "fragment written inline": inline_fragment,
    "another variant": edit("recipes/tiny.toml", "[variant.long", "[variant.longer.profile]\nrepeat = 9\n\n[variant.long"),
    "file modes": lambda it: (it.root / "models/tiny.safetensors").chmod(0o444),
    "empty cache": lambda it: shutil.rmtree(it.workspace.cache),
    "line ends": lambda it: (it.root / "recipes/tiny.toml").write_bytes(
        (it.root / "recipes/tiny.toml").read_bytes().replace(b"\n", b"\r\n")),
}  # fmt: skip


@pytest.mark.parametrize("name", IRRELEVANT)
def test_what_does_not_matter_is_not_refused(locked: Locked, name: str) -> None:
    IRRELEVANT[name](locked)
    done = locked.doit("build", "tiny", "--locked", "--stages", "fetch")
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1), done.stderr
    assert done.stderr.startswith("tiny: fetch     hit")
