"""Memory planning: no two tensors that meet share a storage, and real nets come near the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pydoit.kernels.apply import schedule_module
from pydoit.kernels.lowering import compile_module
from pydoit.kernels.memory_plan import Lifetime, MemoryPlan, most_alive, share
from pydoit.tvm_compat import relax, tvm
from tests.relax_modules import TARGET, module_of, random

LIFETIMES = st.lists(
    st.tuples(st.integers(1, 1000), st.integers(0, 40), st.integers(0, 12)).map(lambda x: Lifetime(x[0], x[1], x[1] + x[2])),
    max_size=40,
)


@given(LIFETIMES)
def test_tensors_of_a_storage_never_meet(lifetimes: list[Lifetime]) -> None:
    storages = share(lifetimes)
    assert len(storages) == len(lifetimes)
    for one, (mine, storage) in enumerate(zip(lifetimes, storages, strict=True)):
        for other in range(one):
            assert storages[other] != storage or not mine.meets(lifetimes[other])


@given(LIFETIMES)
def test_no_more_storages_than_tensors_alive_at_once_of_one_size(lifetimes: list[Lifetime]) -> None:
    same = [Lifetime(8, life.born, life.dies) for life in lifetimes]
    total = 8 * len(set(share(same)))
    assert total >= most_alive(same)
    assert total <= 2 * most_alive(same)


def planned(build: Any, inputs: dict[str, tuple[int, ...]]) -> tuple[MemoryPlan, Any]:
    module = module_of(build, inputs)
    with TARGET:
        module = relax.transform.LegalizeOps()(module)
    scheduled, _ = schedule_module(module, TARGET, {})
    plan = MemoryPlan()
    machine = relax.VirtualMachine(compile_module(scheduled, TARGET, plan), tvm.cpu())
    return plan, machine["main"]


def test_a_chain_needs_two_storages() -> None:
    def chain(x: Any) -> Any:
        builder = relax.BlockBuilder.current()
        for _ in range(6):
            x = builder.emit(relax.op.exp(relax.op.negative(x)))
        return relax.op.sum(x)

    plan, main = planned(chain, {"x": (4, 16)})
    tensor = 4 * 16 * 4
    assert plan.bytes["main"] == plan.live_bytes["main"] == 2 * tensor + 4
    x = random(4, 16)
    expected = x.astype(np.float64)
    for _ in range(6):
        expected = np.exp(-expected)
    np.testing.assert_allclose(main(tvm.runtime.tensor(x)).numpy(), expected.sum(), rtol=1e-5)


def test_views_and_results_keep_their_memory() -> None:
    """A reshape keeps its source alive, and what is returned is no part of the plan."""

    def body(x: Any) -> Any:
        builder = relax.BlockBuilder.current()
        kept = builder.emit(relax.op.exp(x))
        flat = builder.emit(relax.op.reshape(kept, (64,)))
        for _ in range(3):
            x = builder.emit(relax.op.sin(builder.emit(relax.op.cos(x))))
        return relax.Tuple([relax.op.add(relax.op.reshape(flat, (4, 16)), x), kept])

    _, main = planned(body, {"x": (4, 16)})
    x = random(4, 16)
    results = [main(tvm.runtime.tensor(value)) for value in (x, x + 1)]
    for given_x, result in zip((x, x + 1), results, strict=True):
        wanted = given_x.astype(np.float64)
        for _ in range(3):
            wanted = np.sin(np.cos(wanted))
        np.testing.assert_allclose(result[1].numpy(), np.exp(given_x), rtol=1e-5)
        np.testing.assert_allclose(result[0].numpy(), np.exp(given_x.astype(np.float64)) + wanted, rtol=1e-5)
