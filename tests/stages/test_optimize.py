"""optimize, tune, compile and weights on a small net: their files, their determinism, their errors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from relax_modules import random
from safetensors.numpy import load_file, save_file
from small_import import write_import

from pydoit import passes
from pydoit.errors import StageError, UserError
from pydoit.records import Record, Records, TuningTarget, read_records
from pydoit.stages import compile as compile_stage
from pydoit.stages import optimize, tune, weights
from pydoit.tvm_compat import relax, tvm

TARGET = {"kind": "cpu", "arch": "x86-64-v3"}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What import would write for the net."""
    return write_import(tmp_path_factory.mktemp("import"))


def build(imported: Path, out: Path, records: Path | None = None, preset: str = "O2") -> dict[str, Path]:
    folders = {"import": imported, **{name: out / name for name in ("optimize", "tune", "compile", "weights")}}
    for folder in folders.values():
        folder.mkdir(exist_ok=True, parents=True)
    optimize.run(
        optimize.Spec.model_validate({"passes": passes.PRESETS[preset], "target": TARGET}), folders, folders["optimize"]
    )
    given = folders if records is None else {**folders, "records": records}
    tune.run(tune.Spec.model_validate({"target": TARGET}), given, folders["tune"])
    compile_stage.run(compile_stage.Spec.model_validate({"target": TARGET}), folders, folders["compile"])
    weights.run(weights.Spec.model_validate({"target": TARGET}), folders, folders["weights"])
    return folders


def outputs(folders: dict[str, Path]) -> dict[str, str]:
    files = [path for name, folder in folders.items() if name != "import" for path in folder.iterdir()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def result(folders: dict[str, Path], x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(folders["compile"] / "lib.so")), tvm.cpu())
    tensors = load_file(folders["weights"] / "model.safetensors")
    names = [weight["name"] for weight in json.loads((folders["optimize"] / "spec.json").read_text())["weights"]]
    found: np.ndarray[Any, Any] = machine["main"](*[tvm.runtime.tensor(a) for a in (x, *(tensors[n] for n in names))]).numpy()
    return found


def test_presets_agree_and_weights_keep_readable_names(imported: Path, tmp_path: Path) -> None:
    x = random(1, 3, 8, 8, seed=9)
    expected = result(build(imported, tmp_path / "O0", preset="O0"), x)
    for preset in ("O1", "O2", "O3"):
        np.testing.assert_allclose(result(build(imported, tmp_path / preset, preset=preset), x), expected, rtol=1e-5, atol=1e-5)
    spec = json.loads((tmp_path / "O2" / "optimize" / "spec.json").read_text())
    assert sorted(weight["name"] for weight in spec["weights"]) == ["conv.weight.packed", "head.bias", "head.weight.packed"]


def test_two_folders_get_the_same_bytes(imported: Path, tmp_path: Path) -> None:
    first, second = (outputs(build(imported, tmp_path / name)) for name in ("one", "another/deeper"))
    assert first == second


def test_a_failing_pass_is_named(imported: Path, tmp_path: Path) -> None:
    (tmp_path / "broken_pass.py").write_text(
        "class Broken:\n    def __call__(self, module):\n        raise ValueError('no such thing')\n"
    )
    spec = optimize.Spec.model_validate({"passes": ["broken_pass:Broken"], "target": TARGET})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        with pytest.raises(StageError, match='pass "broken_pass:Broken" failed: no such thing'):
            optimize.run(spec, {"import": imported}, tmp_path)


def test_passes_json_tells_which_passes_changed_something(imported: Path, tmp_path: Path) -> None:
    folders = build(imported, tmp_path)
    log = json.loads((folders["optimize"] / "passes.json").read_text())["passes"]
    changed = {entry["name"]: entry["changed"] for entry in log}
    assert changed["ConvertLayout"]
    assert changed["PackWeights"]
    assert not changed["FoldBatchNorm"]


def test_records_of_another_arch_are_ignored_and_said(imported: Path, tmp_path: Path) -> None:
    folders = build(imported, tmp_path / "build")
    path = tmp_path / "records.json"
    path.write_text(Records(target=TuningTarget(arch="sapphirerapids"), records=()).to_text())
    measured = tune.run(tune.Spec.model_validate({"target": TARGET}), {**folders, "records": path}, tmp_path)
    assert measured["matched"] == 0
    assert measured["ignored_reason"] == "the records are for sapphirerapids, the target is x86-64-v3"
    strict = tune.Spec.model_validate({"target": TARGET, "on_miss": "error"})
    with pytest.raises(UserError, match=r"no record for .*matmul"):
        tune.run(strict, {**folders, "records": path}, tmp_path)


def test_a_record_changes_the_library_and_not_the_result(imported: Path, tmp_path: Path) -> None:
    from pydoit.kernels.tasks import extract_tasks
    from pydoit.tvm_compat import load_json

    plain = build(imported, tmp_path / "plain")
    module = load_json((plain["optimize"] / "module.json").read_text())
    (task,) = [task for task in extract_tasks(module) if "conv2d" in task.name]
    decisions = {"rows": 2, "vectors": 1, "width": 8, "unroll": 1}
    record = Record(task=task.name, key=task.key, decisions=decisions, microseconds=1.0, default_microseconds=1.0)
    stale = record.model_copy(update={"task": "gone", "key": "0" * 64})
    path = tmp_path / "records.json"
    path.write_text(Records(target=TuningTarget(arch="x86-64-v3"), records=(record, stale)).to_text())
    tuned = build(imported, tmp_path / "tuned", path)
    assert [found.key for found in read_records(tuned["tune"] / "records.json").records] == [task.key]
    assert outputs(plain)["lib.so"] != outputs(tuned)["lib.so"]
    x = random(1, 3, 8, 8, seed=9)
    np.testing.assert_allclose(result(tuned, x), result(plain, x), rtol=1e-5, atol=1e-5)


def test_changed_weights_compile_nothing_again(imported: Path, tmp_path: Path) -> None:
    folders = build(imported, tmp_path / "build")
    changed = tmp_path / "import"
    changed.mkdir()
    tensors = load_file(imported / "params.safetensors")
    tensors["head.bias"] = tensors["head.bias"] + np.float32(1)
    save_file(tensors, changed / "params.safetensors")
    x = random(1, 3, 8, 8, seed=9)
    before = result(folders, x)
    weights.run(weights.Spec.model_validate({"target": TARGET}), {**folders, "import": changed}, folders["weights"])
    np.testing.assert_allclose(result(folders, x), before + 1, rtol=1e-5, atol=1e-5)
