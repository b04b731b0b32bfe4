"""profile on a compiled small model: the fields of the report, and times that are plausible."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from small_models import CPU, SMALL_NET, build

from pydoit.compiled import open_model
from pydoit.errors import UserError
from pydoit.importers.spec import Input
from pydoit.measure import statistics
from pydoit.random_tensors import random_sample
from pydoit.runtime import Model
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


def test_several_clients_at_a_time(tmp_path: Path) -> None:
    stages = build(SMALL_NET, tmp_path)
    values = {"inputs": SMALL_NET["inputs"], "repeat": 50, "concurrency": [1, 3], "target": {**CPU, "threads": 1}}
    alone, three = profile.run(profile.Spec.model_validate(values), stages, tmp_path)["concurrency"]
    assert (alone["clients"], three["clients"]) == (1, 3)
    assert (alone["latency_ms"]["n"], three["latency_ms"]["n"]) == (50, 150)
    assert "p99" not in alone["latency_ms"]
    assert three["latency_ms"]["p95"] <= three["latency_ms"]["p99"] <= three["latency_ms"]["max"]
    # a client's next call begins when its last one has ended: Little's law, where all of them call all the time
    assert alone["throughput"] * alone["latency_ms"]["mean"] / 1000 == pytest.approx(1, rel=0.3)


def test_a_client_that_fails_is_told_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = build(SMALL_NET, tmp_path)

    def fails(*_: object) -> Model:
        raise UserError("no session today")

    monkeypatch.setattr(Model, "session", fails)
    values = {"inputs": SMALL_NET["inputs"], "repeat": 3, "concurrency": [4], "target": CPU}
    with pytest.raises(UserError, match="no session today"):
        profile.run(profile.Spec.model_validate(values), stages, tmp_path)


def test_sessions_in_threads_compute_what_the_model_computes(tmp_path: Path) -> None:
    stages = build(SMALL_NET, tmp_path)
    model = open_model(stages, 2)
    inputs = {name: Input.model_validate(item) for name, item in SMALL_NET["inputs"].items()}
    samples = [random_sample(inputs, 0, index, {}) for index in range(6)]
    wanted = [model(**sample) for sample in samples]

    def client(index: int) -> None:
        session = model.session(1)
        for _ in range(20):
            for name, array in session(**samples[index]).items():
                np.testing.assert_allclose(array, wanted[index][name], rtol=1e-5, atol=1e-6)

    with ThreadPoolExecutor(len(samples)) as pool:
        list(pool.map(client, range(len(samples))))


def test_a_tail_is_told_of_a_hundred_calls() -> None:
    assert "p99" not in statistics([float(number) for number in range(99)])
    assert statistics([float(number) for number in range(1, 101)])["p99"] == 99.0
    assert statistics([float(number) for number in range(1, 101)])["p95"] == 95.0


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
