"""The search on one small product: records, continuation, budget."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from relax_modules import TARGET, evaluate, module_of, random, run_pass

from pydoit.kernels.search import search
from pydoit.passes.pack_weights import PackWeights
from pydoit.records import Record
from pydoit.tvm_compat import relax


def small_product() -> Any:
    module = module_of(lambda x, w: relax.op.matmul(x, w), {"x": (8, 16)}, {"w": (16, 32)})
    return run_pass(PackWeights(), module)


def search_here(records: Sequence[Record], seconds: float | None) -> tuple[list[Record], list[str]]:
    lines: list[str] = []
    return search(small_product(), TARGET, records, 3, seconds, lines.append), lines


def search_apart(records: Sequence[Record], seconds: float | None = None) -> tuple[list[Record], list[str]]:
    """Search in a fresh process: it forks, and earlier tests have started TVM's thread pool in this one."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(search_here, records, seconds).result()


@pytest.fixture(scope="module")
def found() -> list[Record]:
    return search_apart([])[0]


def test_the_best_is_no_slower_than_the_default(found: list[Record]) -> None:
    assert [record.task for record in found] == ["matmul"]
    assert 0 < found[0].microseconds <= found[0].default_microseconds


def test_recorded_decisions_change_no_result(found: list[Record]) -> None:
    decisions = {record.key: record.decisions for record in found}
    values = random(8, 16), random(16, 32, seed=1)
    assert evaluate(small_product(), *values, decisions=decisions) == pytest.approx(values[0] @ values[1], rel=1e-5, abs=1e-5)


def test_known_kernels_are_not_measured_again(found: list[Record]) -> None:
    assert search_apart(found) == (found, [])


def test_a_spent_budget_leaves_the_default() -> None:
    records, lines = search_apart([], seconds=0.0)
    assert records == []
    assert "budget spent" in lines[0]
