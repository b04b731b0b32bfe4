"""The clean-up that every importer shares, on Relax before and after."""

from __future__ import annotations

import numpy as np
from tvm import relax

from pydoit.importers.imported import finish


def test_one_shape_for_every_importer() -> None:
    builder = relax.BlockBuilder()
    mask = relax.Var("mask", relax.TensorType((4,), "bool"))
    weight, unused = (relax.Var(name, relax.TensorType((4,), "float32")) for name in ("weight", "unused"))
    with builder.function("main", [mask, weight, unused], attrs={"params": 1}):
        with builder.dataflow():
            both = builder.emit(relax.op.bitwise_and(mask, mask))
            wide = builder.emit(relax.op.broadcast_to(both, (4,)))
            result = builder.emit_output(relax.op.multiply(relax.op.astype(wide, "float32"), weight))
        builder.emit_func_output(result)
    arrays = {"unused": np.zeros(4, np.float32), "weight": np.ones(4, np.float32)}
    imported = finish(builder.get(), ["mask"], ["y"], arrays, {"weight": weight, "unused": unused})
    assert list(imported.params) == ["weight"]
    assert imported.operators() == {"relax.astype": 1, "relax.logical_and": 1, "relax.multiply": 1}
    assert isinstance(imported.module["main"].ret_ty, relax.TupleType)
    assert dict(imported.module["main"].attrs) == {"global_symbol": "main", "num_input": 1}
    assert imported.spec() == {
        "schema": 1,
        "entry": "main",
        "dims": {},
        "inputs": [{"name": "mask", "shape": [4], "dtype": "bool"}],
        "outputs": [{"name": "y", "shape": [4], "dtype": "float32"}],
        "params": [{"name": "weight", "shape": [4], "dtype": "float32"}],
    }
