"""The tracers on a compiled model: the same kernels, in order, within the run; counters where the machine has them."""

from __future__ import annotations

import pytest

from pydoit.profiling import tracer as tracing
from pydoit.profiling.tracer import PlainTracer, Tracer, kernel_steps, make_tracer
from tests.conftest import TestWorkspace, make_workspace


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    workspace = make_workspace(tmp_path_factory.mktemp("traced"))
    assert workspace.doit("build", "tiny").returncode == 0
    return workspace


@pytest.mark.parametrize("kind", [Tracer, PlainTracer])
def test_a_run(built: TestWorkspace, kind: type[Tracer | PlainTracer]) -> None:
    import numpy as np

    from pydoit.runtime import load

    tracer = kind()
    model = load(built.root / "artifacts/tiny", threads=2)
    call = model.bind({"input": np.ones((1, 3, 8, 8), np.float32)})
    model.instrument(tracer.instrument)
    runs = [tracer.run(call) for _ in range(3)]
    names = [[step.kernel for step in run.steps] for run in runs]
    assert names[0] == names[1] == names[2]
    assert any("conv2d" in name for name in names[0])
    assert not any(name.startswith("vm.builtin") for name in names[0])
    for run in runs:
        ends = [step.start_ms + step.ms for step in run.steps]
        assert all(step.ms >= 0 for step in run.steps)
        assert all(end <= later.start_ms + 1e-9 for end, later in zip(ends, run.steps[1:], strict=False))
        assert run.steps[0].start_ms >= 0
        assert ends[-1] <= run.ms
    if tracer.counters:
        counted = tracer.run(call, count=True)
        assert set(counted.steps[0].counters) == set(tracer.counters)
        assert [step.kernel for step in counted.steps] == names[0]
        assert not runs[0].steps[0].counters
        if "task_clock_ns" in tracer.counters:
            assert sum(step.counters["task_clock_ns"] for step in counted.steps) > 0


def test_only_the_innermost_calls_count() -> None:
    events = [
        ("outer", True, 100, (1,)), ("vm.builtin.alloc", True, 110, (1,)), ("vm.builtin.alloc", False, 120, (2,)),
        ("inner", True, 200, (3,)), ("inner", False, 1200, (10,)), ("outer", False, 2000, (12,)),
    ]  # fmt: skip
    (step,) = kernel_steps(events, 100, ("cycles",))
    assert (step.kernel, step.start_ms, step.ms, step.counters) == ("inner", 0.0001, 0.001, {"cycles": 7})


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pydoit.tools.compiler", lambda: None)
    assert isinstance(make_tracer(), PlainTracer)


def test_more_events_than_were_expected(built: TestWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from pydoit.runtime import load

    monkeypatch.setattr(tracing, "CAPACITY", 2)
    tracer = Tracer()
    model = load(built.root / "artifacts/tiny", threads=2)
    model.instrument(tracer.instrument)
    assert tracer.run(model.bind({"input": np.ones((1, 3, 8, 8), np.float32)})).steps
