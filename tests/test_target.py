"""Names of architectures: resolution of `native`, nearest matches, what this machine runs."""

from __future__ import annotations

import pytest

from pydoit import cpus, target
from pydoit.errors import UserError

V2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
V3 = V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@pytest.mark.parametrize(
    ("flags", "arch"),
    [(set(), "x86-64"), (V2, "x86-64-v2"), (V3, "x86-64-v3"), (V4, "x86-64-v4"), (V4 - {"fma"}, "x86-64-v2")],
)
def test_native_is_the_highest_whole_level(flags: set[str], arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert cpus.native_arch(frozenset(flags)) == arch


def test_other_machines_are_generic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert cpus.native_arch(frozenset(V4)) == "generic"


@pytest.mark.parametrize(("arch", "near"), [("x86-64-v5", "x86-64-v"), ("saphirerapids", "sapphirerapids")])
def test_unknown_archs_name_the_nearest(arch: str, near: str) -> None:
    with pytest.raises(UserError, match=near):
        target.resolve_arch("cpu", arch)


def test_what_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(cpus, "cpu_flags", lambda: frozenset(V3))
    runs = {
        arch: target.runs_here(target.ResolvedTarget(kind="cpu", arch=arch)) for arch in ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    }
    assert runs == {"x86-64-v2": True, "x86-64-v3": True, "x86-64-v4": False}
    assert not target.runs_here(target.ResolvedTarget(kind="cuda", arch="sm_90"))
