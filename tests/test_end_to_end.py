"""The checked-in recipes from wheel to verified artifact, as a user builds them, in a copy of this workspace."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import TestWorkspace

from pydoit.stages import STAGES

ROOT = Path(__file__).parents[1]
RECIPES = ("minilm", "efficientnet-lite0", "opennsfw", "resnet50")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    folder = tmp_path_factory.mktemp("end_to_end")
    shutil.copytree(ROOT / "recipes", folder / "workspace/recipes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "modelbuild.toml", folder / "workspace")
    (folder / "workspace/benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks/peers.json", folder / "workspace/benchmarks")
    workspace = TestWorkspace(folder / "workspace", folder / "cache")
    done = workspace.doit("build", *RECIPES, "--set", "profile.repeat=5")
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


@pytest.mark.parametrize("recipe", RECIPES)
def test_verified_against_the_reference_on_inputs_that_differ(built: TestWorkspace, recipe: str) -> None:
    report = built.report(recipe)
    verify, profile = report["verify"], report["profile"]
    assert verify["passed"]
    assert verify["samples"] >= 8
    assert verify["distinct_outputs"] == verify["samples"]
    assert verify["max_abs"] <= 1e-3
    assert verify["cosine"] >= 0.99999
    assert verify["reference"] == ("onnxruntime" if recipe == "opennsfw" else "torch")
    assert 0 < profile["latency_ms"]["median"] <= profile["latency_ms"]["p95"]
    assert profile["latency_ms"]["n"] == 5
    assert profile["throughput"] > 0
    assert profile["peak_memory_bytes"] > 10**7
    assert [stage["name"] for stage in report["stages"]] == list(STAGES)
    library = built.root / report["library"]["path"]
    assert library.stat().st_size == report["library"]["bytes"]


def test_a_second_build_has_nothing_to_do(built: TestWorkspace) -> None:
    done = built.doit("build", *RECIPES, "--set", "profile.repeat=5")
    assert done.returncode == 0
    assert done.stdout.count("up to date") == len(RECIPES)
    assert done.stderr == ""


@pytest.mark.parametrize("recipe", RECIPES)
def test_records_are_used_where_they_match(built: TestWorkspace, recipe: str) -> None:
    report = built.report(recipe)
    tune = report["measurements"]["tune"]
    if report["target"]["arch"] == "x86-64-v4":
        assert tune["missed"] == []
        assert tune["stale"] == []
        assert report["measurements"]["compile"]["tuned"] == tune["matched"] > 0
    else:
        assert "x86-64-v4" in tune["ignored_reason"]


def run_elsewhere(built: TestWorkspace, recipe: str, inputs: list[dict[str, np.ndarray]], tmp_path: Path) -> list[np.ndarray]:
    """First outputs for `inputs`, from a copy of the artifact, in a process that has the runtime only."""
    shutil.copytree(built.root / "artifacts" / recipe, tmp_path / "artifact")
    for number, item in enumerate(inputs):
        np.savez(tmp_path / f"{number}.npz", **item)
    code = (
        "import sys, numpy\nfrom pydoit.runtime import load\nmodel = load('artifact')\n"
        f"for number in range({len(inputs)}):\n"
        "    outputs = model(**numpy.load(f'{number}.npz'))\n"
        "    numpy.save(f'{number}.npy', next(iter(outputs.values())))\n"
        "assert not {'torch', 'pydantic', 'doit', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    return [np.load(tmp_path / f"{number}.npy") for number in range(len(inputs))]


def import_datasets(built: TestWorkspace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(built.root))
    monkeypatch.delitem(sys.modules, "recipes", raising=False)
    monkeypatch.delitem(sys.modules, "recipes.datasets", raising=False)
    import recipes.datasets

    return recipes.datasets


def test_chelsea_and_coffee_are_recognized(built: TestWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = import_datasets(built, monkeypatch)
    declared = {"inputs": {"shape": [1, 3, 224, 224], "dtype": "float32"}}
    pictures = datasets.efficientnet_pictures(declared, 8, 0, tmp_path)
    outputs = run_elsewhere(built, "efficientnet-lite0", pictures, tmp_path)
    assert {282, 967} <= {int(output.argmax()) for output in outputs}


def test_sentence_similarities_match_torch_to_three_digits(
    built: TestWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModel

    datasets = import_datasets(built, monkeypatch)
    folder = built.fetched("minilm")
    declared = {name: {"shape": [1, 128], "dtype": "int64"} for name in ("input_ids", "attention_mask")}
    samples = datasets.sentences(declared, 8, 0, folder)
    ours = run_elsewhere(built, "minilm", samples, tmp_path)
    reference = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        tensors = [{name: torch.from_numpy(value) for name, value in sample.items()} for sample in samples]
        theirs = [reference(**sample)[0].numpy() for sample in tensors]

    def similarities(states: list[np.ndarray]) -> np.ndarray:
        masks = [sample["attention_mask"][..., None] for sample in samples]
        pooled = [(state * mask).sum(1)[0] / mask.sum() for state, mask in zip(states, masks, strict=True)]
        unit = np.stack([vector / np.linalg.norm(vector) for vector in pooled])
        return unit @ unit.T

    mine = similarities(ours)
    np.testing.assert_allclose(mine, similarities(theirs), atol=5e-4)
    off = mine[~np.eye(len(mine), dtype=bool)]
    assert off.max() > 0.6  # the paraphrase
    assert off.min() < 0.2  # an unrelated pair
