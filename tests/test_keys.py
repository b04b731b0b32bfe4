"""Canonical JSON and the differences that `doit why` tells."""

from __future__ import annotations

import pytest

from pydoit.keys import canonical, changes, digest_of


def test_key_order_does_not_matter_and_values_do() -> None:
    assert digest_of({"a": 1, "b": [1, {"c": None}]}) == digest_of({"b": [1, {"c": None}], "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 1.5})
    assert digest_of({"a": [1, 2]}) != digest_of({"a": [2, 1]})


def test_canonical_is_utf8_and_refuses_nan() -> None:
    assert canonical({"ä": True}) == '{"ä":true}'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical(float("nan"))


def test_changes_name_old_and_new() -> None:
    old = {"config": {"passes": ["A", "B"], "threads": 1}, "tools": {"apache-tvm": "0.26"}, "gone": {"x": 1}}
    new = {"config": {"passes": ["B", "A"], "threads": 1}, "tools": {"apache-tvm": "0.27"}, "came": "f" * 64}
    assert [str(change) for change in changes(old, new)] == [
        "came: none -> ffffffffffff",
        'config.passes: ["A", "B"] -> ["B", "A"]',
        "gone.x: 1 -> none",
        "tools.apache-tvm: 0.26 -> 0.27",
    ]
