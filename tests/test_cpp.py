"""The C++ header: the example program, compiled against the wheels' headers, gives what Python gives."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from small_models import SMALL_NET, build, package, ramp

from pydoit import runtime

ROOT = Path(__file__).parents[1]


def compile_example(program: Path) -> None:
    """As docs and README tell a user to do it."""
    packages = {name: Path(importlib.util.find_spec(name).submodule_search_locations[0]) for name in ("tvm", "tvm_ffi")}  # type: ignore[union-attr,index]
    command = [
        "g++", "-std=c++17", "-Wall", "-Werror", str(ROOT / "examples/cpp/main.cpp"), "-o", str(program),
        f"-I{ROOT / 'pydoit/runtime/cpp'}", "-isystem", str(packages["tvm_ffi"] / "include"),
        *(option for path in packages.values() for option in (f"-L{path / 'lib'}", f"-Wl,-rpath,{path / 'lib'}")),
        "-Wl,--no-as-needed", "-ltvm_runtime", "-ltvm_ffi", "-pthread",
    ]  # fmt: skip
    subprocess.run(command, check=True)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cpp")
    return package(build(SMALL_NET, folder / "build"), folder / "package")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "main"
    compile_example(path)
    return path


def test_it_prints_what_python_computes(program: Path, artifact: Path) -> None:
    result = subprocess.run([program, artifact], capture_output=True, text=True, check=True, env={"PATH": "/nonexistent"})
    model = runtime.load(artifact)
    outputs = model(**{spec.name: ramp(spec.shape, spec.dtype) for spec in model.inputs})
    printed = dict(line.split(":") for line in result.stdout.splitlines())
    assert list(printed) == ["features", "logits"]
    for name, values in printed.items():
        # printed with six digits
        np.testing.assert_allclose([float(v) for v in values.split()], outputs[name].ravel()[:5], rtol=1e-5, atol=1e-6)


def test_the_example_is_about_thirty_lines() -> None:
    assert len((ROOT / "examples/cpp/main.cpp").read_text().splitlines()) <= 40


def test_a_damaged_folder_ends_with_a_message(program: Path, artifact: Path, tmp_path: Path) -> None:
    shutil.copytree(artifact, tmp_path / "cut")
    weights = tmp_path / "cut/weights/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    for folder, message in ((tmp_path / "none", "manifest.json: cannot be read"), (tmp_path / "cut", "model.safetensors")):
        result = subprocess.run([program, folder], capture_output=True, text=True, check=False)
        assert result.returncode != 0
        assert message in result.stderr
