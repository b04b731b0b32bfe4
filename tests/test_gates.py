"""Gates: bounds hold or are told, misspelt metrics never pass."""

from __future__ import annotations

import math

import pytest

from pydoit.gates import failures
from pydoit.recipe import Gate as GateModel

MEASURED = {"verify": {"cosine": 0.9999, "nan": math.nan}, "profile": {"latency_ms": {"median": 5.0}}}


@pytest.mark.parametrize(
    ("gate", "says"),
    [
        (GateModel(metric="verify.cosine", min=0.99), None),
        (GateModel(metric="verify.cosine", min=0.99999), "below min"),
        (GateModel(metric="profile.latency_ms.median", max=5), None),
        (GateModel(metric="profile.latency_ms.median", max=4.9), "above max"),
        (GateModel(metric="profile.latency_ms.medain", max=9), "was not measured"),
        (GateModel(metric="profile.latency_ms", max=9), "was not measured"),
        (GateModel(metric="verify.nan", min=0), "below min"),
        (GateModel(metric="verify.nan", max=0), "above max"),
    ],
)
def test_gate(gate: GateModel, says: str | None) -> None:
    found = failures([gate.model_dump(exclude_none=True)], MEASURED)
    assert len(found) == (says is not None)
    assert says is None or says in found[0]


def test_a_deferred_stage_is_not_judged() -> None:
    assert failures([{"metric": "profile.throughput", "min": 1}], {"verify": {}, "profile": None}) == []
