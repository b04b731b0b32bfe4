"""The runtime on a packaged small model: from another folder, with few packages, and with clear errors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import SMALL_NET, build, package, ramp

from pydoit import importers, runtime
from pydoit.errors import UserError
from pydoit.importers.spec import ModelSpec

PLAIN = """
import json, sys, numpy, tvm.runtime.vm
from safetensors.numpy import load_file
folder = sys.argv[1]
manifest, weights = json.load(open(f"{folder}/manifest.json")), load_file(f"{folder}/weights/model.safetensors")
inputs = [numpy.full(item["shape"], 0.5, item["dtype"]) for item in manifest["inputs"]]
main = tvm.runtime.vm.VirtualMachine(tvm.runtime.load_module(f"{folder}/lib.so"), tvm.cpu())["main"]
outputs = main(*map(tvm.runtime.tensor, [*inputs, *(weights[item["name"]] for item in manifest["params"])]))
print(json.dumps(outputs[1].numpy().tolist()))
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runtime")
    made = package(build(SMALL_NET, folder / "build"), folder / "package")
    shutil.move(made, folder / "elsewhere")
    shutil.rmtree(folder / "build")
    return folder / "elsewhere"


@pytest.fixture
def inputs() -> dict[str, np.ndarray[Any, Any]]:
    return {"image": ramp((1, 3, 8, 8), "float32"), "scale": np.ones((1, 1), np.float32)}


def expected(inputs: dict[str, np.ndarray[Any, Any]], folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    return importers.reference(ModelSpec.model_validate(SMALL_NET), folder)(inputs)


def test_outputs_by_name(artifact: Path, inputs: dict[str, Any], tmp_path: Path) -> None:
    outputs = runtime.load(artifact)(**inputs)
    for name, wanted in expected(inputs, tmp_path).items():
        # float32 sums of 27 products of values near 1
        np.testing.assert_allclose(outputs[name], wanted, atol=1e-5)


def test_outputs_of_one_call_survive_the_next(artifact: Path, inputs: dict[str, Any]) -> None:
    model = runtime.load(artifact)
    first = model(**inputs)["logits"]
    kept = first.copy()
    model(image=inputs["image"] + 1, scale=inputs["scale"])
    np.testing.assert_array_equal(first, kept)


def test_inputs_that_lie_badly_are_copied(artifact: Path, inputs: dict[str, Any]) -> None:
    model = runtime.load(artifact)
    wanted = model(**inputs)["logits"]
    shifted = np.zeros(1 + inputs["image"].size, np.float32)[1:].reshape(1, 3, 8, 8)
    shifted[...] = inputs["image"]
    turned = np.ascontiguousarray(inputs["image"].transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    frozen = inputs["image"].copy()
    frozen.flags.writeable = False
    for image in (shifted, turned, frozen):
        np.testing.assert_array_equal(model(image=image, scale=inputs["scale"])["logits"], wanted)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_those_asked_for(artifact: Path, threads: int) -> None:
    code = (
        "import os, sys; from pydoit import runtime; from pydoit.runtime import library\n"
        "before = os.sched_getaffinity(0)\n"
        "model = runtime.load(sys.argv[1], threads=int(sys.argv[2]))\n"
        "print(library.tvm_ffi().get_global_func('runtime.NumThreads')(), before == os.sched_getaffinity(0))"
    )
    arguments = [sys.executable, "-c", code, str(artifact), str(threads)]
    printed = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
    assert printed == [str(threads), "True"]


def test_it_needs_neither_torch_nor_pydantic_nor_the_compiler(artifact: Path) -> None:
    code = (
        "import sys; from pydoit import runtime\n"
        "import numpy\n"
        "model = runtime.load(sys.argv[1])\n"
        "model(**{spec.name: numpy.ones(spec.shape, spec.dtype) for spec in model.inputs})\n"
        "print([n for n in ('torch', 'tvm', 'pydantic', 'doit', 'tomli', 'transformers') if n in sys.modules])\n"
        "print([line.split('/')[-1].strip() for line in open('/proc/self/maps') if 'libtvm_compiler' in line])"
    )
    arguments = [sys.executable, "-c", code, str(artifact)]
    printed = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split("\n")
    assert printed[:2] == ["[]", "[]"]


@pytest.mark.parametrize("runtime_only", ["0", "1"])
def test_an_artifact_runs_without_pydoit(artifact: Path, tmp_path: Path, runtime_only: str) -> None:
    import os

    environment = {**os.environ, "TVM_USE_RUNTIME_LIB": runtime_only}
    arguments = [sys.executable, "-c", PLAIN, str(artifact)]
    printed = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path).stdout
    inputs = {"image": np.full((1, 3, 8, 8), 0.5, np.float32), "scale": np.full((1, 1), 0.5, np.float32)}
    np.testing.assert_allclose(json.loads(printed), expected(inputs, tmp_path)["logits"], atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"imagee": np.zeros(1)}, "takes no input 'imagee'; it takes image, scale"),
        ({"image": np.zeros((1, 3, 8, 8))}, "input 'image': dtype is float64, not float32"),
        ({"image": np.zeros((3, 8, 8), np.float32)}, "input 'image': shape is [3, 8, 8], not [1, 3, 8, 8]"),
        ({"image": None}, "the input 'image' is missing; pass float32 [1, 3, 8, 8]"),
    ],
)
def test_wrong_inputs(artifact: Path, inputs: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    given = {name: value for name, value in {**inputs, **changes}.items() if value is not None}
    with pytest.raises(UserError) as caught:
        runtime.load(artifact)(**given)
    assert message in str(caught.value)


def test_damaged_folders(artifact: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no readable manifest.json"):
        runtime.load(tmp_path)
    shutil.copytree(artifact, tmp_path / "cut")
    weights = tmp_path / "cut/weights/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(UserError, match=r"weights/model.safetensors is missing or has another size"):
        runtime.load(tmp_path / "cut")
    manifest = tmp_path / "cut/manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(UserError, match="schema 2; this version reads 1"):
        runtime.load(tmp_path / "cut")
