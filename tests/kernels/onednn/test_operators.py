"""Convolutions and products by oneDNN beside PyTorch's, in float32 and bfloat16, with what follows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onednn_library import build, module_with_batch
from onednn_model import load
from torch.nn import functional

from pydoit.runtime import Model
from pydoit.tvm_compat import relax

PRECISIONS = ("float32", "bfloat16")
# Of a float32 sum, and of operands rounded to 8 bits, relative to the root of the number of summands.
ERRORS = {"float32": 2e-6, "bfloat16": 2.0**-8}


@dataclass(frozen=True)
class Convolution:
    """Extents (NHWC) and attributes of a convolution, and what follows it."""

    data: tuple[Any, ...]
    columns: int
    kernel: tuple[int, int] = (3, 3)
    options: dict[str, Any] = field(default_factory=dict)
    follows: str = ""

    @property
    def weights(self) -> tuple[int, ...]:
        return (self.columns, *self.kernel, self.data[3] // self.options.get("groups", 1))


CONVOLUTIONS = (
    Convolution((1, 9, 9, 16), 32, options={"padding": 1}, follows="bias relu"),
    Convolution((1, 8, 8, 64), 64, (1, 1), follows="bias add relu"),
    Convolution((2, 11, 13, 3), 64, (7, 7), {"strides": 2, "padding": 3}, "bias relu"),
    Convolution((1, 9, 7, 5), 7, options={"padding": (0, 1, 2, 0)}, follows="clip"),
    Convolution((1, 10, 10, 12), 20, options={"dilation": 2, "groups": 2}),
    Convolution((8, 6, 6, 24), 24, options={"groups": 24, "padding": 1}, follows="bias clip"),
    Convolution((3, 6, 6, 10), 20, options={"groups": 10, "strides": (2, 1)}, follows="add"),
    Convolution(("batch", 7, 7, 32), 48, options={"padding": 1, "strides": 2}, follows="bias silu"),
    Convolution(("batch", 5, 5, 17), 33, (1, 1), follows="bias add relu scaled"),
)


def follow(builder: Any, value: Any, case: Convolution, variables: dict[str, Any], number: int) -> Any:
    for step in case.follows.split():
        value = builder.emit({
            "bias": lambda v: relax.op.add(v, variables[f"b{number}"]),
            "add": lambda v: relax.op.add(variables[f"r{number}"], v),
            "relu": relax.op.nn.relu,
            "silu": relax.op.nn.silu,
            "clip": lambda v: relax.op.minimum(relax.op.maximum(v, relax.const(0.0)), relax.const(3.0)),
            "scaled": lambda v: relax.op.multiply(v, relax.const(0.25)),
        }[step](value))  # fmt: skip
    return value


def followed(value: torch.Tensor, case: Convolution, arrays: dict[str, Any], number: int) -> torch.Tensor:
    for step in case.follows.split():
        value = {
            "bias": lambda v: v + arrays[f"b{number}"],
            "add": lambda v: v + arrays[f"r{number}"],
            "relu": torch.relu,
            "silu": functional.silu,
            "clip": lambda v: v.clamp(0, 3),
            "scaled": lambda v: v * 0.25,
        }[step](value)
    return value


def reference(case: Convolution, arrays: dict[str, Any], number: int) -> torch.Tensor:
    """In float64, NHWC."""
    options = dict(case.options)
    options["stride"] = options.pop("strides", 1)
    padding = options.pop("padding", 0)
    top, left, bottom, right = padding if isinstance(padding, tuple) else (padding,) * 4
    data = functional.pad(arrays[f"x{number}"].permute(0, 3, 1, 2), (left, right, top, bottom))
    result = functional.conv2d(data, arrays[f"w{number}"].permute(0, 3, 1, 2), **options).permute(0, 2, 3, 1)
    return followed(result, case, arrays, number)


def result_extents(case: Convolution, batch: int) -> tuple[Any, ...]:
    arrays = {"x0": torch.zeros(batch, *case.data[1:]), "w0": torch.zeros(case.weights)}
    plain = Convolution(case.data, case.columns, case.kernel, case.options)
    return (case.data[0], *reference(plain, arrays, 0).shape[1:])


def body(builder: Any, variables: dict[str, Any]) -> list[Any]:
    results = []
    for number, case in enumerate(CONVOLUTIONS):
        options = {"data_layout": "NHWC", "kernel_layout": "OHWI", **case.options}
        value = builder.emit(relax.op.nn.conv2d(variables[f"x{number}"], variables[f"w{number}"], **options))
        results.append(follow(builder, value, case, variables, number))
    return results


def shapes() -> tuple[dict[str, tuple[Any, ...]], dict[str, tuple[int, ...]]]:
    inputs: dict[str, tuple[Any, ...]] = {}
    weights: dict[str, tuple[int, ...]] = {}
    for number, case in enumerate(CONVOLUTIONS):
        inputs[f"x{number}"] = case.data
        if "add" in case.follows:
            inputs[f"r{number}"] = result_extents(case, 1)
        weights[f"w{number}"] = case.weights
        if "bias" in case.follows:
            weights[f"b{number}"] = (case.columns,)
    return inputs, weights


def values(extents: dict[str, tuple[Any, ...]], batch: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    """Standard normal values, the same for a name and its extents."""
    made = {}
    for name, shape in extents.items():
        sizes = [batch if isinstance(size, str) else size for size in shape]
        made[name] = np.random.default_rng(sum(name.encode())).standard_normal(sizes).astype("float32")
    return made


@pytest.fixture(scope="module", params=PRECISIONS)
def convolutions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Model]:
    inputs, weights = shapes()
    module = module_with_batch(body, inputs, weights)
    folder = build(module, values(weights), request.param, tmp_path_factory.mktemp("convolutions"))
    return request.param, load(folder)


def close(found: np.ndarray[Any, Any], wanted: torch.Tensor, depth: int, precision: str) -> None:
    bound = ERRORS[precision] * 4 * depth**0.5
    np.testing.assert_allclose(found, wanted.numpy(), rtol=ERRORS[precision], atol=bound)


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_convolutions_with_what_follows(convolutions: tuple[str, Model], batch: int) -> None:
    precision, model = convolutions
    inputs, weights = shapes()
    given = values(inputs, batch)
    outputs = model(**given)
    arrays = {name: torch.from_numpy(array).double() for name, array in {**given, **values(weights)}.items()}
    for number, case in enumerate(CONVOLUTIONS):
        depth = case.weights[1] * case.weights[2] * case.weights[3]
        close(outputs[f"output{number}"], reference(case, arrays, number), depth, precision)


MATRICES = {"x": ("batch", 13, 40), "w": (40, 24), "b": (24,), "left": (2, 3, 9, 16), "right": (2, 3, 16, 11), "row": (1, 40)}


def products(builder: Any, variables: dict[str, Any]) -> list[Any]:
    op = relax.op
    dense = builder.emit(op.add(variables["b"], builder.emit(op.matmul(variables["x"], variables["w"]))))
    activated = builder.emit(op.nn.gelu(dense))
    batched = builder.emit(op.multiply(builder.emit(op.matmul(variables["left"], variables["right"])), relax.const(0.25)))
    row = builder.emit(op.matmul(variables["row"], variables["w"]))
    return [activated, batched, row]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_products(precision: str, tmp_path: Path) -> None:
    weights = {name: MATRICES[name] for name in ("w", "b")}
    inputs = {name: shape for name, shape in MATRICES.items() if name not in weights}
    folder = build(module_with_batch(products, inputs, weights), values(weights), precision, tmp_path)
    model = load(folder)
    for batch in (1, 4, 8):
        given = values(inputs, batch)
        arrays = {name: torch.from_numpy(array).double() for name, array in {**given, **values(weights)}.items()}
        outputs = model(**given)
        wanted = functional.gelu(arrays["x"] @ arrays["w"] + arrays["b"])
        close(outputs["output0"], wanted, 40, precision)
        close(outputs["output1"], arrays["left"] @ arrays["right"] * 0.25, 16, precision)
        close(outputs["output2"], arrays["row"] @ arrays["w"], 40, precision)


@pytest.mark.parametrize("level", ["AVX2", "AVX512_CORE", "AVX512_CORE_BF16"])
def test_machines_with_fewer_instructions_compute_the_same(level: str, tmp_path: Path) -> None:
    import subprocess
    import sys

    weights = {"w": (8, 3, 3, 4)}
    inputs = {"x": (1, 6, 6, 4)}

    def one(builder: Any, variables: dict[str, Any]) -> list[Any]:
        value = relax.op.nn.conv2d(variables["x"], variables["w"], data_layout="NHWC", kernel_layout="OHWI")
        return [builder.emit(relax.op.nn.relu(builder.emit(value)))]

    folder = build(module_with_batch(one, inputs, weights), values(weights), "bfloat16", tmp_path)
    np.save(tmp_path / "x.npy", values(inputs)["x"])
    program = (
        "import sys, numpy; sys.path.insert(0, sys.argv[2]); from pathlib import Path; from onednn_model import load;"
        "folder = Path(sys.argv[1]); model = load(folder); numpy.save(folder / 'y.npy', model(x=numpy.load(folder / 'x.npy'))['output0'])"
    )
    import os

    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": level}
    subprocess.run([sys.executable, "-c", program, str(folder), str(Path(__file__).parents[2])], check=True, env=environment)
    found = np.load(tmp_path / "y.npy")
    rounded = {
        name: torch.from_numpy(array).bfloat16().double() for name, array in {**values(inputs), **values(weights)}.items()
    }
    case = Convolution((1, 6, 6, 4), 8)
    wanted = torch.relu(reference(case, {"x0": rounded["x"], "w0": rounded["w"]}, 0))
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-4)
