"""The trace: every event as the Trace Event Format wants it, in order, with live memory beside it."""

from __future__ import annotations

import json

from samples import damaged_reports, full_report, hostile_report, language_report

from pydoit.report.trace import make_trace


def test_events_are_valid_and_in_order() -> None:
    report = full_report()
    trace = make_trace(report)
    assert trace is not None
    json.dumps(trace, allow_nan=False)
    calls = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    timeline = report["profile"]["timeline"]
    assert [event["name"] for event in calls] == [item["kernel"] for item in timeline]
    assert calls[3]["ts"] == timeline[3]["start_ms"] * 1000
    assert calls[3]["dur"] == timeline[3]["ms"] * 1000
    starts = [event["ts"] for event in calls]
    assert starts == sorted(starts)
    for event in trace["traceEvents"]:
        assert {"name", "ph", "pid"} <= set(event)
        assert event["ph"] in ("X", "M", "C")
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or (event["dur"] >= 0 and event["cat"] == "kernel" and isinstance(event["tid"], int))


def test_live_memory_is_a_counter() -> None:
    report = full_report()
    trace = make_trace(report)
    assert trace is not None
    counters = [event["args"]["bytes"] for event in trace["traceEvents"] if event["ph"] == "C"]
    assert len(counters) == len(report["profile"]["timeline"])
    assert max(counters) == report["profile"]["memory"]["live_bytes"]


def test_without_a_timeline_there_is_none() -> None:
    assert make_trace(language_report()) is None
    assert make_trace({}) is None


def test_hostile_names_and_damage() -> None:
    for report in [hostile_report(), *damaged_reports()]:
        json.dumps(make_trace(report), allow_nan=False).encode()
