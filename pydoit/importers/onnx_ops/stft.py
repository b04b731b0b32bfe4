"""STFT: frames gathered by constant positions, windowed, transformed."""

from __future__ import annotations

import numpy as np

from pydoit.importers.onnx_ops.dft import transform
from pydoit.importers.onnx_ops.node import Expr, Node, const, shape_of


def stft(node: Node) -> Expr:
    """signal [batch, samples, 1 or 2], frame_step, window [n], frame_length -> [batch, frames, bins, 2]."""
    from tvm import relax

    signal = node[0]
    samples = shape_of(signal)[1]
    step = node.constant(1, "frame_step")
    length = node.constant(3, "frame_length")
    frame = int(length.reshape(-1)[0]) if length is not None else shape_of(node[2])[0]
    if step is None or not isinstance(samples, int):
        raise node.refuse("a signal of symbolic length", "fix the input shapes")
    count = (samples - frame) // int(step.reshape(-1)[0]) + 1
    starts = np.arange(count) * int(step.reshape(-1)[0])
    positions = starts[:, None] + np.arange(frame)
    frames = node.emit(relax.op.take(signal, const(positions, "int64"), axis=1))
    if node.has(2):
        window = node.emit(relax.op.reshape(node[2], [1, 1, -1, 1]))
        frames = node.emit(relax.op.multiply(frames, window))
    return transform(node, frames, frame, one_sided=bool(node.get("onesided", 1)))


CONVERTERS = {"STFT": stft}
