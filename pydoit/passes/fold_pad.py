"""FoldPad: fold zero padding of an image into the padding of the convolution that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.tvm_compat import PyExprMutator, mutator, relax


@dataclass(frozen=True)
class FoldPad:
    """Rewrite `conv2d(pad(x, zeros), w, padding=p)` to `conv2d(x, w, padding=p + pad)` in NCHW.

    Frameworks that pad unevenly ("same" padding of TensorFlow's networks) export the pad as an operator of its own;
    it would be computed apart and would stop the layout conversion.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with pads folded; a pad that something else reads too stays for that reader."""
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(name, _Folder(module).visit_expr(function))
        return relax.transform.DeadCodeElimination()(module)


@mutator
class _Folder(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        """Fold the pad that computes a convolution's data."""
        call = super().visit_call_(call)
        if getattr(call.op, "name", None) != "relax.nn.conv2d" or call.attrs.data_layout != "NCHW":
            return call
        pad = self.lookup_binding(call.args[0]) if isinstance(call.args[0], relax.Var) else None
        if not isinstance(pad, relax.Call) or getattr(pad.op, "name", None) != "relax.nn.pad":
            return call
        widths = [int(width) for width in pad.attrs.pad_width]
        if pad.attrs.pad_mode != "constant" or float(pad.attrs.pad_value) != 0.0 or any(widths[:4]) or min(widths) < 0:
            return call
        top, bottom, left, right = widths[4:]
        present = [int(width) for width in call.attrs.padding]
        attrs = call.attrs
        return relax.op.nn.conv2d(
            pad.args[0],
            call.args[1],
            strides=[int(stride) for stride in attrs.strides],
            padding=[present[0] + top, present[1] + left, present[2] + bottom, present[3] + right],
            dilation=[int(step) for step in attrs.dilation],
            groups=int(attrs.groups),
            data_layout=attrs.data_layout,
            kernel_layout=attrs.kernel_layout,
            out_layout=attrs.out_layout,
            out_dtype=attrs.out_dtype or None,
        )
