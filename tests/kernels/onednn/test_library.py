"""A library that calls oneDNN: the same bytes everywhere, whole in another folder, safe beside another and in threads."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onednn_library import build, module_with_batch
from onednn_model import load

from pydoit.kernels.onednn.build import LIBRARY
from pydoit.tvm_compat import relax

TESTS = Path(__file__).parents[2]
SHAPES: dict[str, tuple[Any, ...]] = {"x": (1, 12, 12, 16), "w": (16, 3, 3, 16), "m": (16, 16)}


def body(builder: Any, variables: dict[str, Any]) -> list[Any]:
    options = {"padding": 1, "data_layout": "NHWC", "kernel_layout": "OHWI"}
    first = builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(variables["x"], variables["w"], **options))))
    # A kernel of TVM's with a parallel loop lies between the two calls.
    between = builder.emit(relax.op.nn.softmax(first, axis=-1))
    return [builder.emit(relax.op.matmul(between, variables["m"]))]


def arrays(seed: int) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype("float32") for name, shape in SHAPES.items()}


def made(folder: Path, seed: int = 0) -> Path:
    given = arrays(seed)
    module = module_with_batch(body, {"x": SHAPES["x"]}, {"w": SHAPES["w"], "m": SHAPES["m"]})
    return build(module, {"w": given["w"], "m": given["m"]}, "float32", folder)


def expected(x: np.ndarray[Any, Any], seed: int) -> np.ndarray[Any, Any]:
    import torch
    from torch.nn import functional

    given = {name: torch.from_numpy(array) for name, array in arrays(seed).items()}
    data = torch.from_numpy(x).permute(0, 3, 1, 2)
    hidden = torch.relu(functional.conv2d(data, given["w"].permute(0, 3, 1, 2), padding=1)).permute(0, 2, 3, 1)
    return (torch.softmax(hidden, -1) @ given["m"]).numpy()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("first"))


def digest(folder: Path) -> dict[str, str]:
    names = ("lib.so", LIBRARY, "model.safetensors", "module.json")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def test_two_builds_are_the_same_bytes(library: Path, tmp_path: Path) -> None:
    again = made(tmp_path / "another folder")
    assert digest(again) == digest(library)
    text = (again / "lib.so").read_bytes()
    assert str(tmp_path).encode() not in text
    assert b"site-packages" not in text


def run_elsewhere(folder: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program that sees `folder` in a process of its own."""
    command = [sys.executable, "-c", program, str(folder), str(TESTS)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


RUN = """
import sys, numpy
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from onednn_model import load
x = numpy.ones((1, 12, 12, 16), "float32")
print(repr(float(load(Path(sys.argv[1]))(x=x)["output0"].sum())))
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libdnnl" in line}
assert libraries == {str(Path(sys.argv[1], "libdnnl.so.3"))}, libraries
"""


def test_a_copy_elsewhere_takes_the_library_beside_it(library: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(library, tmp_path / "copied")
    result = run_elsewhere(copy, RUN)
    assert result.returncode == 0, result.stderr
    wanted = expected(np.ones(SHAPES["x"], np.float32), 0).sum()
    assert float(result.stdout) == pytest.approx(wanted, rel=1e-4)


def test_without_its_library_the_message_names_it(library: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(library, tmp_path / "copied")
    (copy / LIBRARY).unlink()
    result = run_elsewhere(copy, RUN)
    assert result.returncode != 0
    assert f"{LIBRARY}: cannot open shared object file" in result.stderr


def test_two_libraries_and_two_weights_of_one_in_threads(library: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "other", seed=1)
    models = [(load(library, threads=2), 0), (load(library, threads=1), 0), (load(other, threads=2), 1)]
    inputs = [np.random.default_rng(number).standard_normal(SHAPES["x"]).astype("float32") for number in range(3)]
    wanted = [expected(x, seed) for x, (_, seed) in zip(inputs, models, strict=True)]
    faults: list[str] = []

    def work(number: int) -> None:
        model = load(library if models[number][1] == 0 else other) if number == 1 else models[number][0]
        for _ in range(20):
            found = model(x=inputs[number])["output0"]
            if not np.allclose(found, wanted[number], atol=1e-4):
                faults.append(f"model {number}: {np.abs(found - wanted[number]).max()}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_new_weights_in_the_same_library_are_packed_anew(library: Path, tmp_path: Path) -> None:
    from pydoit import weight_file

    x = np.ones(SHAPES["x"], np.float32)
    for seed in range(4):
        given = arrays(seed)
        names = [item["name"] for item in json.loads((library / "spec.json").read_text())["weights"]]
        weight_file.write(tmp_path / "model.safetensors", {name: given[name] for name in names})
        shutil.copyfile(library / "spec.json", tmp_path / "spec.json")
        for name in ("lib.so", LIBRARY):
            if not (tmp_path / name).exists():
                (tmp_path / name).symlink_to(library / name)
        model = load(tmp_path)
        np.testing.assert_allclose(model(x=x)["output0"], expected(x, seed), atol=1e-4)
        del model


def test_the_number_of_threads_is_the_recipes(library: Path) -> None:
    program = RUN.replace("load(Path(sys.argv[1]))", "load(Path(sys.argv[1]), threads=1)") + (
        "import threading, os; print(len(os.listdir('/proc/self/task')))"
    )
    one = run_elsewhere(library, program)
    two = run_elsewhere(library, program.replace("threads=1", "threads=2"))
    assert one.returncode == two.returncode == 0, one.stderr + two.stderr
    # one more of libgomp's and one more of TVM's own, which sleeps
    assert int(two.stdout.split()[-1]) - int(one.stdout.split()[-1]) in (1, 2)
