"""What a stage's key says beside its config."""

from __future__ import annotations

import pytest

from pydoit import graph, tools
from pydoit.target import ResolvedTarget


def test_a_profile_belongs_to_its_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores are shared: times of another CPU or GPU are another profile."""
    monkeypatch.setattr(tools, "gpu_names", lambda: "NVIDIA H200")
    cpu, cuda = ResolvedTarget(kind="cpu", arch="x86-64-v3"), ResolvedTarget(kind="cuda", arch="sm_90")
    assert graph._hardware(cpu) == {"cpu": tools.cpu_name()}
    assert graph._hardware(cuda) == {"cpu": tools.cpu_name(), "gpu": "NVIDIA H200"}
    monkeypatch.setattr(tools, "gpu_names", lambda: tools.ABSENT)
    assert graph._hardware(cuda)["gpu"] == "absent"
