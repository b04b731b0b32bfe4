"""The import stage: three files, the same bytes each time, and a light module."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from safetensors.numpy import load_file
from small_models import SMALL_NET

from pydoit.stages import import_


def run(folder: Path) -> dict[str, object]:
    (folder / "fetch/model").mkdir(parents=True)
    (folder / "out").mkdir()
    return import_.run(import_.Spec.model_validate(SMALL_NET), {"fetch": folder / "fetch"}, folder / "out")


def test_the_files_describe_one_model(tmp_path: Path) -> None:
    measured = run(tmp_path)
    spec = json.loads((tmp_path / "out/spec.json").read_bytes())
    params = load_file(tmp_path / "out/params.safetensors")
    assert {item["name"]: tuple(item["shape"]) for item in spec["params"]} == {n: a.shape for n, a in params.items()}
    assert measured["parameters"] == sum(array.size for array in params.values())
    assert measured["operators"]["relax.nn.conv2d"] == 1


def test_two_imports_give_the_same_bytes(tmp_path: Path) -> None:
    run(tmp_path / "one")
    run(tmp_path / "two")
    for name in ("module.json", "params.safetensors", "spec.json"):
        assert (tmp_path / "one/out" / name).read_bytes() == (tmp_path / "two/out" / name).read_bytes()


def test_the_stages_load_no_framework() -> None:
    code = (
        "import sys\n"
        "from pydoit.stages import fetch, import_, package, profile, verify\n"
        "print([n for n in ('torch', 'tvm', 'tvm_ffi', 'transformers', 'onnx', 'numpy') if n in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
