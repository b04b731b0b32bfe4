"""FoldConstant: constants are evaluated, but one without elements stays a call."""

from __future__ import annotations

import numpy as np

from pydoit.passes import make_pass
from pydoit.tvm_compat import IRModule, load_json, relax, save_json


def module(shape: list[int]) -> IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2, 3], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            filled = builder.emit(relax.op.add(builder.emit(relax.op.zeros(shape, "float32")), relax.const(np.float32(1))))
            out = builder.emit_output(relax.op.concat([x, filled], axis=1))
        builder.emit_func_output(out)
    return builder.get()


def test_constants_are_folded() -> None:
    text = str(make_pass("FoldConstant")(module([2, 1])))
    assert "R.zeros" not in text
    assert "R.add" not in text


def test_empty_constants_can_be_stored() -> None:
    folded = make_pass("FoldConstant")(module([2, 0]))
    assert "R.zeros" in str(folded)
    load_json(save_json(folded))
