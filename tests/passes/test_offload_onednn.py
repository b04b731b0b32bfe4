"""OffloadOneDnn: which bindings become one call, what stays TVM's, and what bfloat16 does between calls."""

from __future__ import annotations

from typing import Any

import pytest
from relax_modules import module_of, operators, run_pass

from pydoit.errors import UserError
from pydoit.kernels.onednn.choice import recorded
from pydoit.kernels.onednn.site import PostOp, Site, calls_of, sites_of
from pydoit.passes.offload_onednn import OffloadOneDnn
from pydoit.tvm_compat import relax

ALL = OffloadOneDnn(conv2d="onednn", matmul="onednn")
NARROW = OffloadOneDnn(conv2d="onednn", matmul="onednn", precision="bfloat16")


def conv(x: Any, w: Any) -> Any:
    return relax.op.nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="OHWI")


def block(x: Any, w: Any, b: Any) -> Any:
    return relax.op.nn.relu(relax.op.add(x, relax.op.add(conv(x, w), b)))


def normalized(module: Any) -> Any:
    return relax.transform.Normalize()(module)


def block_module(bias: tuple[int, ...] = (1, 1, 1, 8)) -> Any:
    return normalized(module_of(block, {"x": (1, 5, 5, 8)}, {"w": (8, 3, 3, 8), "b": bias}))


def test_a_convolution_takes_bias_sum_and_activation() -> None:
    before = block_module()
    assert operators(before) == ["nn.conv2d", "add", "add", "nn.relu"]
    after = run_pass(ALL, before)
    assert operators(after) == ["reshape", "call_dps_packed"]
    site = Site(
        "conv2d", "float32", "float32", (1, 5, 5, 8), (8, 3, 3, 8), has_bias=True,
        post_ops=(PostOp("add", dtype="float32"), PostOp("relu")), padding=(1, 1, 1, 1),
    )  # fmt: skip
    assert sites_of(after) == {"onednn_conv2d_0": site}
    (call,) = calls_of(after)
    assert (call.symbol, call.weight, call.data, call.out) == ("onednn_conv2d_0", 0, (1, 5, 5, 8), (1, 5, 5, 8))


def test_a_second_run_changes_nothing() -> None:
    once = run_pass(ALL, block_module())
    assert relax.analysis.check_well_formed(once)
    assert operators(run_pass(ALL, once)) == operators(once)
    assert sites_of(run_pass(ALL, once)) == sites_of(once)


def test_a_result_that_is_read_twice_ends_the_call() -> None:
    def twice(x: Any, w: Any) -> Any:
        value = relax.BlockBuilder.current().emit(conv(x, w))
        return relax.op.add(relax.op.nn.relu(value), relax.op.tanh(value))

    after = run_pass(ALL, normalized(module_of(twice, {"x": (1, 5, 5, 8)}, {"w": (8, 3, 3, 8)})))
    assert operators(after) == ["call_dps_packed", "nn.relu", "tanh", "add"]


def test_one_of_two_convolutions_takes_their_sum() -> None:
    def two(x: Any, v: Any, w: Any) -> Any:
        return relax.op.nn.relu(relax.op.add(conv(x, v), conv(x, w)))

    after = run_pass(ALL, normalized(module_of(two, {"x": (1, 5, 5, 8)}, {"v": (8, 3, 3, 8), "w": (8, 3, 3, 8)})))
    assert operators(after) == ["call_dps_packed", "call_dps_packed"]
    assert [[item.name for item in site.post_ops] for site in sites_of(after).values()] == [[], ["add", "relu"]]


@pytest.mark.parametrize("layout", ["NCHW", "other type"])
def test_what_onednn_is_not_asked_for_stays(layout: str) -> None:
    def plain(x: Any, w: Any) -> Any:
        return (
            relax.op.nn.conv2d(x, w)
            if layout == "NCHW"
            else relax.op.matmul(relax.op.astype(x, "float16"), relax.op.astype(w, "float16"))
        )

    shapes = ((1, 8, 5, 5), (8, 8, 3, 3)) if layout == "NCHW" else ((4, 8), (8, 8))
    module = normalized(module_of(plain, {"x": shapes[0]}, {"w": shapes[1]}))
    assert operators(run_pass(ALL, module)) == operators(module)


def test_the_recipe_chooses_by_operator_class() -> None:
    def both(x: Any, w: Any, m: Any) -> Any:
        return relax.op.matmul(conv(x, w), m)

    module = normalized(module_of(both, {"x": (1, 5, 5, 8)}, {"w": (8, 3, 3, 8), "m": (8, 4)}))
    assert operators(run_pass(OffloadOneDnn(conv2d="onednn", matmul="tvm"), module)) == ["call_dps_packed", "matmul"]
    assert operators(run_pass(OffloadOneDnn(conv2d="tvm", matmul="onednn"), module)) == ["nn.conv2d", "call_dps_packed"]


def test_auto_follows_the_records_alone() -> None:
    module = block_module()
    assert operators(run_pass(OffloadOneDnn(), module)) == operators(module)
    (site,) = sites_of(run_pass(ALL, module)).values()
    with recorded({site.key: {"provider": "onednn"}}):
        assert "call_dps_packed" in operators(run_pass(OffloadOneDnn(), module))
    with recorded({site.key: {"provider": "tvm"}}):
        assert operators(run_pass(OffloadOneDnn(), module)) == operators(module)


def test_bfloat16_stays_between_calls_and_ends_in_float32() -> None:
    def chain(x: Any, v: Any, w: Any) -> Any:
        pooled = relax.op.nn.max_pool2d(relax.op.nn.relu(conv(x, v)), pool_size=(2, 2), layout="NHWC")
        return relax.op.tanh(conv(pooled, w))

    module = normalized(module_of(chain, {"x": (1, 6, 6, 8)}, {"v": (8, 3, 3, 8), "w": (8, 3, 3, 8)}))
    after = run_pass(NARROW, module)
    assert operators(after) == ["astype", "astype", "call_dps_packed", "nn.max_pool2d", "astype", "call_dps_packed"]
    assert [(site.dtype, site.out_dtype) for site in sites_of(after).values()] == [
        ("bfloat16", "bfloat16"),
        ("bfloat16", "float32"),
    ]


def test_a_record_holds_whatever_type_the_result_has() -> None:
    site = Site("matmul", "bfloat16", "bfloat16", (1, 8), (8, 8), post_ops=(PostOp("add", dtype="float32"),))
    other = Site("matmul", "bfloat16", "float32", (1, 8), (8, 8), post_ops=(PostOp("add", dtype="bfloat16"),))
    assert site.key == other.key != Site("matmul", "float32", "", (1, 8), (8, 8), post_ops=(PostOp("add"),)).key


def test_unknown_options_are_refused() -> None:
    with pytest.raises(UserError, match="precision"):
        OffloadOneDnn(precision="int8")
