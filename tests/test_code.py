"""Digests of source code follow imports inside their root."""

from __future__ import annotations

from pathlib import Path

from pydoit.code import CodeDigests, own_code


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_imports_are_followed_inside_the_root(tmp_path: Path) -> None:
    write(tmp_path, {
        "recipes/net.py": "import torch\ndef f():\n    from recipes.parts import block\n",
        "recipes/parts.py": "from . import deep\nimport helpers.one as h\n",
        "recipes/deep.py": "",
        "recipes/other.py": "",
        "helpers/__init__.py": "",
        "helpers/one.py": "",
        "helpers/two.py": "",
    })  # fmt: skip
    files = CodeDigests(tmp_path).digest("recipes.net")
    assert sorted(files) == ["helpers/one.py", "recipes/deep.py", "recipes/net.py", "recipes/parts.py"]


def test_a_package_stands_for_all_its_files(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import registry\n", "registry/__init__.py": "", "registry/x.py": "", "registry/data.h": ""})
    assert sorted(CodeDigests(tmp_path).digest("a")) == ["a.py", "registry/__init__.py", "registry/data.h", "registry/x.py"]


def test_our_own_package_is_no_user_code(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "from pydoit.errors import UserError\n", "pydoit/__init__.py": "", "pydoit/errors.py": ""})
    assert sorted(CodeDigests(tmp_path).digest("a")) == ["a.py"]


def test_cycles_end(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import b", "b.py": "import a"})
    assert sorted(CodeDigests(tmp_path).digest("a")) == ["a.py", "b.py"]


def test_a_stage_depends_on_what_it_imports_and_not_on_other_stages() -> None:
    compile_code = own_code().digest("pydoit.stages.compile")
    assert "stages/compile.py" in compile_code
    assert "tvm_compat.py" in compile_code
    assert not {"stages/verify.py", "commands/build.py", "builder.py"} & set(compile_code)
    assert any(name.startswith("passes/") for name in own_code().digest("pydoit.stages.optimize"))
