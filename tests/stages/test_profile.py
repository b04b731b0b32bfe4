"""profile on a compiled small model: the fields of the report, and times that are plausible."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from small_models import CPU, SMALL_NET, build

from pydoit.stages import profile


def test_the_measurements(tmp_path: Path) -> None:
    stages = build(SMALL_NET, tmp_path)
    spec = profile.Spec.model_validate({"inputs": SMALL_NET["inputs"], "repeat": 7, "warmup": 2, "target": CPU})
    measured = profile.run(spec, stages, tmp_path)
    json.dumps(measured, allow_nan=False)
    latency = measured["latency_ms"]
    assert latency["n"] == 7
    assert 0 < latency["min"] <= latency["median"] <= latency["p95"] <= latency["max"]
    assert measured["throughput"] > 0
    assert measured["threads"] == 2
    assert "cores" in measured["device"]
    assert measured["first_call_ms"] > 0
    assert measured["load_ms"] > 0
    assert any("conv2d" in kernel["name"] for kernel in measured["kernels"])
    assert abs(sum(kernel["share"] for kernel in measured["kernels"]) - 1) < 1e-6


def test_a_process_of_its_own_needs_neither_torch_nor_the_compiler(tmp_path: Path) -> None:
    stages = {name: str(path) for name, path in build(SMALL_NET, tmp_path).items()}
    spec = {"inputs": SMALL_NET["inputs"], "repeat": 3, "warmup": 1, "target": CPU}
    code = (
        "import json, pathlib, sys\n"
        "from pydoit.stages import profile\n"
        "spec, stages = json.loads(sys.argv[1]), json.loads(sys.argv[2])\n"
        "inputs = {name: pathlib.Path(path) for name, path in stages.items()}\n"
        "measured = profile.run(profile.Spec.model_validate(spec), inputs, pathlib.Path())\n"
        "print(measured['peak_memory_bytes'], [n for n in ('torch', 'tvm') if n in sys.modules])"
    )
    arguments = [sys.executable, "-c", code, json.dumps(spec), json.dumps(stages)]
    printed = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split(maxsplit=1)
    # the whole process: Python, numpy, TVM's runtime, and a model of some kilobytes
    assert 10e6 < int(printed[0]) < 200e6
    assert printed[1].strip() == "[]"
