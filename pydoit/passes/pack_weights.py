"""PackWeights: convolutions and matrix products with constant weights read them in panels of adjacent columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.kernels import compute
from pydoit.passes.dependence import WeightDependence, weight_params
from pydoit.target import vector_lanes
from pydoit.tvm_compat import PyExprMutator, Target, mutator, relax


@dataclass(frozen=True)
class PackWeights:
    """Replace conv2d (NHWC, OHWI) and matmul by `pydoit.kernels.compute` on re-laid weights, in float32.

    The re-layout is written as Relax operators on the weights, so that LiftTransformParams moves it out. Run it after
    ConvertLayout; convolutions in other layouts, dynamic channels and other dtypes are left to LegalizeOps.
    """

    lanes: int = 0
    """Columns in a panel; 0 takes the vector width of the current target."""

    def __call__(self, module: Any) -> Any:
        """Return the module with packed operators; what cannot be packed is unchanged."""
        lanes = self.lanes or vector_lanes(Target.current())
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                packer = _Packer(module, function, lanes)
                rewritten = packer.visit_expr(function)
                packer.builder_.update_func(name, rewritten)
                module = packer.builder_.get()
        return relax.transform.DeadCodeElimination()(module)


@mutator
class _Packer(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, function: Any, lanes: int) -> None:
        super().__init__(module)
        self._lanes = lanes
        self._constant = WeightDependence(weight_params(function), self.lookup_binding)

    def visit_call_(self, call: Any) -> Any:
        """Pack one operator whose second argument is made of weights alone."""
        call = super().visit_call_(call)
        name = getattr(call.op, "name", None)
        if name not in ("relax.matmul", "relax.nn.conv2d") or not self._constant.holds(call.args[1]):
            return call
        data, weight = call.args
        if data.ty.dtype != "float32" or weight.ty.dtype != "float32" or not _static(weight):
            return call
        if name == "relax.matmul":
            return self._pack_matmul(call)
        if call.attrs.data_layout != "NHWC" or call.attrs.kernel_layout != "OHWI":
            return call
        return self._pack_convolution(call)

    def _pack_matmul(self, call: Any) -> Any:
        data, weight = call.args
        if len(weight.ty.shape) != 2 or len(data.ty.shape) < 2:
            return call
        return self._matmul(data, weight)

    def _matmul(self, data: Any, weight: Any) -> Any:
        """`weight` is [K, N]."""
        depth, columns = (int(size) for size in weight.ty.shape)
        width = compute.panel_width(columns, self._lanes)
        weight = self._pad_axis(weight, 1, -columns % width)
        panels = self.builder_.emit(relax.op.reshape(weight, [depth, -1, width]))
        panels = self.builder_.emit(relax.op.permute_dims(panels, [1, 0, 2]))
        return self.builder_.call_te(compute.packed_matmul, data, panels, columns, primfunc_name_hint="matmul")

    def _pack_convolution(self, call: Any) -> Any:
        data, weight = call.args
        attrs = call.attrs
        columns, kernel_h, kernel_w, depth = (int(size) for size in weight.ty.shape)
        strides, dilation = _pair(attrs.strides), _pair(attrs.dilation)
        padding = tuple(int(width) for width in attrs.padding)
        groups = int(attrs.groups)
        if groups > 1 and depth == 1 and columns == groups:
            taps = self.builder_.emit(relax.op.permute_dims(weight, [1, 2, 3, 0]))
            taps = self.builder_.emit(relax.op.reshape(taps, [kernel_h, kernel_w, columns]))
            return self.builder_.call_te(
                compute.depthwise_conv2d, data, taps, strides, padding, dilation,
                primfunc_name_hint="depthwise_conv2d",
            )  # fmt: skip
        if groups == 1 and (kernel_h, kernel_w, *strides, *padding) == (1, 1, 1, 1, 0, 0, 0, 0):
            matrix = self.builder_.emit(relax.op.reshape(weight, [columns, depth]))
            return self._matmul(data, self.builder_.emit(relax.op.permute_dims(matrix)))
        width = compute.panel_width(columns // groups, self._lanes)
        if columns // groups % width and groups > 1:
            return call
        weight = self._pad_axis(weight, 0, -columns % width)
        panels = self.builder_.emit(relax.op.reshape(weight, [-1, width, kernel_h, kernel_w, depth]))
        panels = self.builder_.emit(relax.op.permute_dims(panels, [0, 2, 3, 4, 1]))
        return self.builder_.call_te(
            compute.packed_conv2d, data, panels, columns, strides, padding, dilation, groups,
            primfunc_name_hint="conv2d",
        )  # fmt: skip

    def _pad_axis(self, weight: Any, axis: int, extra: int) -> Any:
        if not extra:
            return weight
        widths = [0] * (2 * len(weight.ty.shape))
        widths[2 * axis + 1] = extra
        return self.builder_.emit(relax.op.nn.pad(weight, widths))


def _static(tensor: Any) -> bool:
    return all(hasattr(size, "value") for size in tensor.ty.shape)


def _pair(values: Any) -> tuple[int, int]:
    first, second = (int(value) for value in values)
    return first, second
