"""What the diagnosis says of profiles that are made up: each rule at its threshold, and the order of findings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pydoit.diagnosis import Facts, diagnose
from pydoit.diagnosis.finding import OPTIMIZED

CEILINGS: dict[str, Any] = {
    "device": "a CPU", "threads": 2, "copy": 1e10, "call_seconds": 1e-6,
    "bandwidth": [{"bytes": 1 << 20, "read": 5e10}, {"bytes": 1 << 28, "read": 1e10}], "flops": {"float32": 1e11},
}  # fmt: skip
EVEN = {"parallel": 64, "parallel_share": 1.0, "vector_share": 1.0}


def kernel(name: str = "k", ms: float = 10.0, **values: Any) -> dict[str, Any]:
    plain = {
        "name": name, "calls": 1, "ms": ms, "best_ms": ms, "share": 1.0, "flops": 0.0, "bytes": 0, "weight_bytes": 0,
        "dtype": "float32", "weight_dtype": "float32", "intensity": None, "loops": EVEN,
    }  # fmt: skip
    return {**plain, **values}


def facts(*kernels: dict[str, Any], gaps: float = 0.0, **values: Any) -> Facts:
    total = sum(item["ms"] for item in kernels)
    shared = [{**item, "share": item["ms"] / total} for item in kernels]
    profile = {
        "device": "a CPU", "threads": 2, "latency_ms": {"median": total + gaps}, "kernels": shared,
        "trace": {"gaps_ms": gaps, "best_gaps_ms": gaps}, **values.pop("profile", {}),
    }  # fmt: skip
    target = {"kind": "cpu", "threads": 2, "precision": "float32", **values.pop("target", {})}
    return Facts(profile, CEILINGS, target=target, **values)


def found(*kernels: dict[str, Any], **values: Any) -> list[tuple[str, str, str | None]]:
    findings = diagnose(facts(*kernels, **values)).findings
    return [(finding.bottleneck, finding.kind, finding.kernel) for finding in findings]


GOOD = kernel(flops=8e8)  # 8 of 10 ms at the ceiling


def test_nothing_is_said_of_what_is_near_its_ceiling() -> None:
    assert found(GOOD) == []
    assert found(kernel(bytes=80_000_000)) == []
    assert "80%" in diagnose(facts(GOOD)).text


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"flops": 3e8}, ("compute", "underused", "k")),
        ({"flops": 3e8, "loops": {**EVEN, "vector_share": 0.1}}, ("compute", "unvectorized", "k")),
        ({"bytes": 30_000_000}, ("memory", "locality", "k")),
        ({"flops": 3e8, "loops": {**EVEN, "parallel": 1, "parallel_share": 0.1}}, ("scheduling", "serial", "k")),
        ({"flops": 3e8, "loops": {**EVEN, "parallel": 3}}, ("scheduling", "imbalance", "k")),
        ({"bytes": 90_000_000, "weight_bytes": 80_000_000}, ("memory", "saturated", "k")),
    ],
)
def test_one_kernel(values: dict[str, Any], kind: tuple[str, str, str]) -> None:
    assert found(kernel(**values)) == [kind]


def test_narrow_weights_at_full_bandwidth_are_no_finding() -> None:
    assert found(kernel(bytes=90_000_000, weight_bytes=80_000_000, weight_dtype="uint16")) == []


def test_pieces_that_divide_evenly_are_no_imbalance() -> None:
    assert found(kernel(flops=3e8, loops={**EVEN, "parallel": 4})) == [("compute", "underused", "k")]
    assert found(kernel(flops=3e8, loops={**EVEN, "parallel": 3}), profile={"threads": 1}) == [("compute", "underused", "k")]


def test_many_small_faults_of_a_kind_are_one_finding() -> None:
    slow = [kernel(f"k{n}", ms=1.0 + n / 100, flops=1e7) for n in range(20)]
    (finding,) = diagnose(facts(*slow, kernel("large", ms=20.0, flops=2e9))).findings
    assert (finding.kind, finding.kernel) == ("underused", "k19")
    assert "and 19 more like it" in finding.title
    assert finding.gain_ms == pytest.approx(sum(item["ms"] for item in slow) - 20 * 0.1)


def test_small_kernels_are_not_worth_a_finding() -> None:
    assert found(kernel(ms=100.0, flops=9e9), kernel("small", ms=5.0, flops=1e7)) == []


def test_many_short_calls() -> None:
    calls = kernel("tiny", ms=0.1, calls=100, flops=1.0)
    assert found(calls, gaps=0.1) == [("scheduling", "launches", "tiny")]
    (finding,) = diagnose(facts(calls, gaps=0.1)).findings
    assert finding.assignments == ((OPTIMIZED,), ("target.threads=1",))
    fused = facts(calls, gaps=0.1, optimize={"passes": [{"name": "FuseOps"}]})
    assert diagnose(fused).findings[0].assignments == (("target.threads=1",),)


def test_gaps_alone_are_overhead_too() -> None:
    assert found(*[kernel(f"k{n}", ms=1.0, flops=9e7) for n in range(8)], gaps=4.0) == [("scheduling", "launches", "k0")]


def _passes(names: str, tensors: list[dict[str, Any]], **values: Any) -> Facts:
    each = [kernel(name, ms=4.0, bytes=40_000_000, flops=1e6, intensity=0.02) for name in names]
    profile = {
        "memory": {"tensors": tensors, "intermediate_bytes": 1},
        "timeline": [{"kernel": name, "start_ms": 0.0, "ms": 4.0} for name in names],
    }
    return facts(*each, profile=profile, **values)


def test_intermediates_that_only_the_next_kernel_reads() -> None:
    tensors = [{"name": name, "bytes": 20_000_000, "born": place, "dies": place + 1} for place, name in enumerate("ab")]
    (finding,) = diagnose(_passes("abc", tensors)).findings
    assert (finding.bottleneck, finding.kind, finding.kernel, finding.assignments) == (
        "memory", "intermediates", "a", ((OPTIMIZED,),)
    )  # fmt: skip
    kept = [{**tensor, "dies": tensor["born"] + 2} for tensor in tensors]
    assert diagnose(_passes("abc", kept)).findings == ()


def test_the_worst_comes_first() -> None:
    kinds = found(kernel("a", ms=20.0, flops=1e8), kernel("b", ms=50.0, bytes=10_000_000))
    assert [name for _, _, name in kinds] == ["b", "a"]


def test_onednn_is_offered_where_it_is_installed() -> None:
    assert diagnose(facts(kernel(flops=3e8), onednn=True)).findings[0].assignments[0][0] == 'kernels.conv2d="onednn"'
    assert diagnose(facts(kernel(flops=3e8))).findings[0].assignments == ((OPTIMIZED,),)


def test_instructions_a_cycle_are_evidence_where_they_are_counted() -> None:
    counted = kernel(flops=3e8, counters={"cycles": 100, "instructions": 150})
    (finding,) = diagnose(facts(counted)).findings
    assert ("instructions a cycle", 1.5) in [(item.name, item.value) for item in finding.evidence]


LOG = {"name": "A", "changed": True, "iterations": 1, "converged": True, "returns_to": None}


@pytest.mark.parametrize(
    ("entry", "seconds", "kind"),
    [
        ({}, 6.0, "slow pass"),
        ({}, 4.0, None),
        ({"converged": False, "iterations": 4}, 0.1, "unsettled"),
        ({"returns_to": -1}, 0.1, "round trip"),
        ({"changed": False}, 3.0, "idle pass"),
        ({"changed": False}, 0.5, None),
    ],
)
def test_compile_cost(entry: dict[str, Any], seconds: float, kind: str | None) -> None:
    optimize = {"pass_seconds": [seconds], "passes": [{**LOG, **entry}]}
    expected = [("compile", kind, "A")] if kind else []
    assert found(GOOD, optimize=optimize) == expected


def test_a_slow_pass_of_a_slower_build_is_none() -> None:
    optimize = {"pass_seconds": [6.0], "passes": [LOG]}
    assert found(GOOD, optimize=optimize, compile={"codegen_seconds": 60.0}) == []


def test_language_models_are_offered_no_assignments() -> None:
    weights = kernel(bytes=90_000_000, weight_bytes=80_000_000)
    (finding,) = diagnose(facts(weights, onednn=True, profile={"decode": []})).findings
    assert finding.assignments == ()


def test_as_json() -> None:
    value = json.loads(json.dumps(diagnose(facts(kernel(flops=3e8))).to_json()))
    assert value["bottleneck"]["class"] == "compute"
    assert value["findings"][0]["class"] == "compute"
    assert value["findings"][0]["evidence"][0]["threshold"] == 0.5
