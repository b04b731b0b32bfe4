"""Numbers with units and sensible digits; texts without what cannot be shown."""

from __future__ import annotations

import math

import pytest

from pydoit.report import numbers
from pydoit.report.reading import cleaned, number, part, parts


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (numbers.significant(13.4049), "13.4"), (numbers.significant(1234.5), "1,234"), (numbers.significant(30), "30"),
        (numbers.significant(2.54e-5), "2.54×10⁻⁵"), (numbers.significant(-0.0123), "−0.0123"), (numbers.significant("inf"), "inf"),
        (numbers.significant(None), "–"), (numbers.significant(math.nan), "–"), (numbers.significant(0), "0"),
        (numbers.milliseconds(0.85), "850 µs"), (numbers.milliseconds(13.4), "13.4 ms"), (numbers.milliseconds(2310), "2.31 s"),
        (numbers.milliseconds(None), "–"), (numbers.seconds(0.04), "0.04 s"), (numbers.seconds(200), "3 min 20 s"),
        (numbers.size(912), "912 B"), (numbers.size(317_776), "318 kB"), (numbers.size(23_635_656), "23.6 MB"),
        (numbers.size(999_999), "1.00 MB"), (numbers.scaled(1.23e12, "flop/s"), "1.23 Tflop/s"), (numbers.scaled(2.15e9, ""), "2.15 G"),
        (numbers.percent(0.1234), "12.3 %"), (numbers.percent(0.0002), "< 0.1 %"), (numbers.percent(0), "0.0 %"),
        (numbers.signed(0.031), "+3.1 %"), (numbers.signed(-0.004), "−0.4 %"), (numbers.signed(-0.0001), "0.0 %"),
        (numbers.signed(None), "–"), (numbers.trimmed("5.00 ms"), "5 ms"), (numbers.trimmed("1.50×10⁻³"), "1.5×10⁻³"),
        (numbers.trimmed("100 kB"), "100 kB"), (numbers.shortened("a" * 50, 10), "aaaaaa…aaa"), (numbers.shortened("abc", 3), "abc"),
        (numbers.counted(1, "kernel"), "1 kernel"), (numbers.counted(2000, "kernel"), "2,000 kernels"),
    ],
)  # fmt: skip
def test_numbers(shown: str, wanted: str) -> None:
    assert shown == wanted


def test_relative_says_nothing_about_nothing() -> None:
    assert numbers.relative(3.0, 2.0) == 0.5
    assert numbers.relative(3.0, 0) is None
    assert numbers.relative(None, 2.0) is None


def test_reading_takes_what_is_there() -> None:
    assert part({"a": {"b": {"c": 1}}}, "a", "b") == {"c": 1}
    assert part({"a": [1]}, "a", "b") == {}
    assert parts([{"a": 1}, 2, None]) == [{"a": 1}]
    assert parts({"a": 1}) == []
    assert [number(value) for value in (1, 2.5, True, "3", math.inf, None)] == [1.0, 2.5, None, None, None, None]


def test_what_cannot_be_shown_is_replaced() -> None:
    assert cleaned({"a\x00": ["b\u202e", "\ud800", "核 é 🚀", "tab\tline\n"]}) == {
        "a\ufffd": ["b\ufffd", "\ufffd", "核 é 🚀", "tab line "]
    }
