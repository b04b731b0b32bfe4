"""[[gate]]: bounds on measured values, looked at in every build before the artifact is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def failures(gates: Sequence[Mapping[str, Any]], measured: Mapping[str, Any]) -> list[str]:
    """One line for each gate that `measured` ({"verify": ..., "profile": ...}) misses.

    A gate on a deferred stage (None) is not judged: the deferral is reported. A metric that a good stage does not
    have is a failure, so that a misspelt gate never passes.
    """
    return [text for gate in gates if (text := _failure(gate, measured))]


def _failure(gate: Mapping[str, Any], measured: Mapping[str, Any]) -> str:
    metric, least, largest = gate["metric"], gate.get("min"), gate.get("max")
    stage, *path = metric.split(".")
    value: Any = measured.get(stage)
    if value is None:
        return ""
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"gate: {metric} was not measured; name a number of the report (`doit report --format json`)"
    if least is not None and not value >= least:
        return f"gate: {metric} is {value:.6g}, below min = {least:.6g}"
    if largest is not None and not value <= largest:
        return f"gate: {metric} is {value:.6g}, above max = {largest:.6g}"
    return ""
