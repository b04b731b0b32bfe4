"""Each plot: what is drawn for much, little and nothing, and that marks stand inside."""

from __future__ import annotations

import math
import random
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import HOSTILE, built_report, full_report

from pydoit.report.plots import errors, latency, memory, passes, ratios, roofline, stages, timeline, treemap
from pydoit.report.svg import Scale, linear


def parsed(svg: object) -> ET.Element:
    """The plot, whose percentages must lie inside."""
    assert svg is not None
    root = ET.fromstring(str(svg))
    for item in root.iter():
        for name in ("x", "cx", "x1", "x2", "width"):
            value = item.get(name, "")
            if value.endswith("%"):
                assert -0.01 <= float(value[:-1]) <= 100.01, (item.tag, name, value)
        for name in ("width", "height", "r"):
            value = item.get(name, "1").rstrip("%")
            assert float(value) > 0, (item.tag, name, item.attrib)
    return root


def marks(root: ET.Element, kind: str) -> list[ET.Element]:
    return [item for item in root.iter() if kind in item.get("class", "").split()]


def profile(count: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = full_report(count)["profile"]
    return found


@pytest.mark.parametrize("count", [1, 5, 27, 2000])
def test_roofline(count: int) -> None:
    report = profile(count)
    root = parsed(roofline.draw(report["kernels"], report["ceilings"]))
    drawn = marks(root, "mark")
    assert len(drawn) == len(roofline.marks_of(report["kernels"])) <= roofline.MOST
    assert len(marks(root, "rank")) == min(len(drawn), roofline.LABELLED)
    assert len(marks(root, "memory-roof")) == 4, "nearly equal bandwidths are one line"
    assert len(roofline.key(report["kernels"])) == min(len(drawn), roofline.LABELLED)


def test_roofline_without_ceilings_or_operations() -> None:
    kernels = profile()["kernels"]
    assert marks(parsed(roofline.draw(kernels, {})), "mark")
    assert roofline.draw([], {}) is None
    assert roofline.draw([{"name": "copy", "ms": 1.0, "flops": 0, "bytes": 10, "share": 1.0}], {}) is None
    assert roofline.left_out([{"name": "copy", "ms": 1.0, "flops": None, "share": 1.0}]) == (1, 1.0)


def test_a_kernel_stands_where_its_figures_say() -> None:
    kernel = {"name": "k", "ms": 2.0, "flops": 4e9, "bytes": 1e8, "share": 1.0, "calls": 1}
    (mark,) = roofline.marks_of([kernel])
    assert mark.rate == pytest.approx(2e12)
    assert mark.intensity == pytest.approx(40)


@given(st.lists(st.floats(1e-2, 1e2), min_size=1, max_size=60))
def test_the_treemap_fills_its_room(values: list[float]) -> None:
    values = sorted(values, reverse=True)
    room = treemap.Rectangle(0, 0, 1000, 400)
    cells = treemap.squarified(values, room)
    assert len(cells) == len(values)
    assert sum(cell.width * cell.height for cell in cells) == pytest.approx(400_000, rel=1e-6)
    for value, cell in zip(values, cells, strict=True):
        assert cell.width * cell.height == pytest.approx(400_000 * value / sum(values), rel=1e-6)
        assert cell.x >= 0
        assert cell.x + cell.width <= 1000 + 1e-3
        assert cell.y + cell.height <= 400 + 1e-3


@pytest.mark.parametrize("count", [1, 27, 2000])
def test_treemap(count: int) -> None:
    cells = marks(parsed(treemap.draw(profile(count)["kernels"])), "cell")
    assert 1 <= len(cells) <= treemap.MOST + 1


def test_treemap_of_nothing() -> None:
    assert treemap.draw([]) is None
    assert treemap.draw([{"name": "k", "ms": 0.0}, {"name": "l", "ms": None}, {"name": "m", "ms": math.nan}]) is None


def test_timeline_joins_short_calls() -> None:
    calls = [{"kernel": f"k{index}", "start_ms": index * 0.001, "ms": 0.0009} for index in range(20_000)]
    assert len(timeline.pieces_of(calls)) < 2000
    assert sum(piece.calls for piece in timeline.pieces_of(calls)) == 20_000
    parsed(timeline.draw(calls, []))
    assert timeline.draw([], []) is None
    assert timeline.draw([{"kernel": "k", "start_ms": 0, "ms": 0}], []) is None


def test_timeline_keeps_order_and_length() -> None:
    pieces = timeline.pieces_of([{"kernel": "b", "start_ms": 2.0, "ms": 1.0}, {"kernel": "a", "start_ms": 0.0, "ms": 1.5}])
    assert [(piece.kernel, piece.start, piece.end) for piece in pieces] == [("a", 0.0, 1.5), ("b", 2.0, 3.0)]


def test_memory_rectangles_do_not_touch() -> None:
    source = random.Random(0)
    tensors = [memory.Tensor(str(index), source.randrange(64, 4096), born, born + source.randrange(0, 9))
               for index in range(200) for born in (source.randrange(0, 80),)]  # fmt: skip
    placed = memory.stacked(tensors)
    for index, (one, place) in enumerate(placed):
        for other, at in placed[:index]:
            if one.born <= other.dies and other.born <= one.dies:
                assert place + one.bytes <= at or at + other.bytes <= place


def test_live_bytes() -> None:
    tensors = [memory.Tensor("a", 10, 0, 1), memory.Tensor("b", 5, 1, 2)]
    assert memory.live_bytes(tensors, 4) == [10, 15, 5, 0]


@pytest.mark.parametrize("count", [1, 27, 2000])
def test_memory(count: int) -> None:
    root = parsed(memory.draw(profile(count)["memory"])) if count > 1 else None
    if root is not None:
        assert 1 <= len(marks(root, "tensor")) <= memory.MOST
        assert len(marks(root, "level")) == 2
    assert memory.draw({}) is None
    assert memory.draw({"tensors": [{"name": "t", "bytes": None}, "x"]}) is None


def test_stages_and_passes() -> None:
    report = built_report()
    assert len(marks(parsed(stages.draw(report["stages"])), "bar")) == len(report["stages"])
    assert stages.draw([]) is None
    parsed(stages.draw([{"name": "fetch", "status": "hit", "seconds": 0.0}]))
    log = report["measurements"]["optimize"]["passes"]
    assert len(marks(parsed(passes.draw(log)), "series")) == 3
    assert passes.draw(log[:1]) is None
    assert passes.draw([{"name": "x", "figures": None}] * 3) is None


def test_latency() -> None:
    cases = [latency.Case(str(index), 1.0 + index, 0.9, 2.0 + index) for index in range(40)]
    assert len(marks(parsed(latency.draw("Sweep", cases, "batch")), "dot")) == latency.MOST
    assert latency.draw("Sweep", cases[:1], "batch") is None


def test_ratios() -> None:
    rows = [ratios.Ratio("onnxruntime", 0.5, 0.4, 0.6), ratios.Ratio("torch", 2.0, 1.5, 2.5), ratios.Ratio("x", 1.0, 1.0, 1.0)]
    root = parsed(ratios.draw("Ratios", rows))
    assert [item.get("class") for item in marks(root, "point")] == ["point good", "point bad", "point even"]
    assert ratios.draw("Ratios", []) is None


def test_errors() -> None:
    layers = [errors.Error(f"layer {index}", 10.0 ** -(index % 9)) for index in range(100)] + [errors.Error("exact", 0.0)]
    root = parsed(errors.draw("Errors", layers, 1e-3, "max_abs"))
    assert len(marks(root, "dot")) == 101
    assert errors.draw("Errors", layers[:1], 1e-3, "max_abs") is None


def test_names_are_escaped_in_every_plot() -> None:
    kernels = [{"name": name, "ms": 1.0, "flops": 1e9, "bytes": 1e6, "share": 0.1, "calls": 1} for name in HOSTILE[:5]]
    calls = [{"kernel": name, "start_ms": float(index), "ms": 1.0} for index, name in enumerate(HOSTILE[:5])]
    tensors = [{"name": name, "bytes": 64, "born": index, "dies": index + 1} for index, name in enumerate(HOSTILE[:5])]
    for svg in (roofline.draw(kernels, {"flops": {HOSTILE[0]: 1e12}}), treemap.draw(kernels), timeline.draw(calls, kernels),
                memory.draw({"tensors": tensors})):  # fmt: skip
        assert not [item for item in parsed(svg).iter() if item.tag in ("script", "img", "b")]


@given(st.floats(1e-9, 1e15), st.floats(1.001, 1e6))
def test_ticks_are_few_and_inside(low: float, factor: float) -> None:
    for scale in (linear(low * factor), Scale(low, low * factor * 10, is_log=True)):
        ticks = scale.ticks()
        assert 1 <= len(ticks) <= 10
        assert all(scale.low * (1 - 1e-6) <= tick <= scale.high * (1 + 1e-6) for tick in ticks)
