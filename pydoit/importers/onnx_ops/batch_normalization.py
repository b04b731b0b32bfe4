"""BatchNormalization in training mode; for inference TVM's own converter is right."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, shape_of


def batch_normalization(node: Node) -> Expr | list[Expr]:
    """X [N, C, ...], scale, bias, mean, variance [C] -> Y, and in training mode the running mean and variance."""
    from tvm import relax

    rank, dtype = len(shape_of(node[0])), dtype_of(node[0])
    x, epsilon = node[0], node.get("epsilon", 1e-5)
    if not node.get("training_mode", 0):
        call = relax.op.nn.batch_norm(x, *node.inputs[1:5], axis=1, epsilon=epsilon, training=False)
        return node.emit(relax.TupleGetItem(node.emit(call), 0))
    axes = [axis for axis in range(rank) if axis != 1]
    mean = node.emit(relax.op.mean(x, axis=axes))
    variance = node.emit(relax.op.variance(x, axis=axes))

    def shaped(vector: Expr) -> Expr:
        return node.emit(relax.op.reshape(vector, [1, -1] + [1] * (rank - 2)))

    deviation = node.emit(relax.op.sqrt(relax.op.add(variance, const(epsilon, dtype))))
    factor = node.emit(relax.op.divide(node[1], deviation))
    centered = node.emit(relax.op.subtract(x, shaped(mean)))
    y = node.emit(relax.op.add(node.emit(relax.op.multiply(centered, shaped(factor))), shaped(node[2])))
    momentum = node.get("momentum", 0.9)

    def running(old: Expr, new: Expr) -> Expr:
        kept = node.emit(relax.op.multiply(old, const(momentum, dtype)))
        return node.emit(relax.op.add(kept, node.emit(relax.op.multiply(new, const(1 - momentum, dtype)))))

    return [y, running(node[3], mean), running(node[4], variance)][: node.outputs]


CONVERTERS = {"BatchNormalization": batch_normalization}
