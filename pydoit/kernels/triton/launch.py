"""Triton kernels as functions of a library: what is launched with which arguments, and the C++ that does it."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ATTRIBUTE = "pydoit.triton"
"""Attribute of an IRModule: JSON of {symbol: {"operator", "options"}} for the functions that it calls."""
SHARED_DEFAULT = 48 * 1024
"""Bytes of shared memory that a block may use without asking."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch."""

    kernel: Any
    """The @triton.jit function."""
    types: Mapping[str, str]
    """Triton's type of each argument that is no constant, in their order: `*bf16`, `*i32`, `i32`, ..."""
    constants: Mapping[str, Any]
    """Values of the constexpr arguments."""
    arguments: tuple[str, ...]
    """C++ expressions of the arguments of `types`: names of tensors, or numbers."""
    grid: tuple[str, str, str]
    """C++ expressions of the numbers of blocks."""
    warps: int = 4
    """Warps of a block."""
    stages: int = 2
    """Loads in flight ahead of their use."""
    when: str = "true"
    """C++ condition on the tensors under which the kernel is launched."""


@dataclass(frozen=True)
class TritonFunction:
    """A function in destination-passing style: tensors in, then tensors out."""

    symbol: str
    tensors: tuple[str, ...]
    """Names of the parameters, all tensors."""
    launches: tuple[Launch, ...]


@dataclass
class Registry:
    """The functions that a module calls: symbols and how to make them again when it is compiled."""

    functions: dict[str, dict[str, Any]] = field(default_factory=dict)

    def symbol(self, operator: str, **options: Any) -> str:
        """The symbol of an operator (a module of this package) with its options; equal ones share it."""
        entry = {"operator": operator, "options": options}
        for symbol, known in self.functions.items():
            if known == entry:
                return symbol
        symbol = f"triton_{operator}_{sum(known['operator'] == operator for known in self.functions.values())}"
        self.functions[symbol] = entry
        return symbol

    def attach(self, module: Any) -> Any:
        """The module with what `functions_of` reads."""
        return module.with_attr(ATTRIBUTE, json.dumps(self.functions, sort_keys=True))


def entries_of(module: Any) -> dict[str, dict[str, Any]]:
    """Symbol -> {"operator", "options"} of the Triton functions that a module calls."""
    text = (module.attrs or {}).get(ATTRIBUTE)
    return json.loads(str(text)) if text is not None else {}


def functions_of(module: Any) -> list[TritonFunction]:
    """The Triton functions that a module calls."""
    return [
        importlib.import_module(f"pydoit.kernels.triton.{entry['operator']}").make(symbol, **entry["options"])
        for symbol, entry in sorted(entries_of(module).items())
    ]


def cpp_source(functions: list[TritonFunction], compiled: Mapping[tuple[str, int], Any]) -> str:
    """C++ that exports `functions`; `compiled`: (symbol, launch) -> the compiled kernel."""
    parts = [
        "#include <tvm/ffi/container/tensor.h>",
        "#include <tvm/ffi/extra/cuda/cubin_launcher.h>",
        "#include <tvm/ffi/function.h>",
        "static void* at(tvm::ffi::TensorView t) { return static_cast<char*>(t.data_ptr()) + t.byte_offset(); }",
    ]
    for function in functions:
        names = [cubin_name(function.symbol, index) for index in range(len(function.launches))]
        parts += [f"TVM_FFI_EMBED_CUBIN({name});" for name in names]
        bodies = [
            _launch(function, launch, name, compiled[function.symbol, index])
            for index, (launch, name) in enumerate(zip(function.launches, names, strict=True))
        ]
        parameters = ", ".join(f"tvm::ffi::TensorView {name}" for name in function.tensors)
        first = function.tensors[0]
        stream = (
            f"  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream({first}.device().device_type, "
            f"{first}.device().device_id));"
        )
        body = "\n".join(bodies)
        parts.append(f"static void run_{function.symbol}({parameters}) {{\n{stream}\n{body}\n}}")
        parts.append(f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({function.symbol}, run_{function.symbol});")
    return "\n".join(parts) + "\n"


def cubin_name(symbol: str, index: int) -> str:
    """Name of the embedded machine code of a launch."""
    return f"{symbol}_{index}"


def _launch(function: TritonFunction, launch: Launch, name: str, kernel: Any) -> str:
    threads, shared = 32 * launch.warps, int(kernel.metadata.shared)
    lines = [
        f"  if ({launch.when}) {{",
        f"    static auto kernel = EmbedCubinModule_{name}::Global()->mod.{_getter(kernel.metadata.name, shared)};",
    ]
    pointers = []
    for index, (kind, expression) in enumerate(zip(launch.types.values(), launch.arguments, strict=True)):
        declared = f"void* a{index} = at({expression})" if kind.startswith("*") else f"int32_t a{index} = {expression}"
        lines.append(f"    {declared};")
        pointers.append(f"&a{index}")
    # Triton's kernels end with two pointers to scratch memory, which these kernels do not use.
    lines += ["    void* none = nullptr;", f"    void* arguments[] = {{{', '.join([*pointers, '&none', '&none'])}}};"]
    grid = ", ".join(f"static_cast<uint32_t>({part})" for part in launch.grid)
    lines += [
        f"    tvm::ffi::dim3 grid({grid}), block({threads}u, 1u, 1u);",
        f"    TVM_FFI_CHECK_CUBIN_LAUNCHER_CUDA_ERROR(kernel.Launch(arguments, grid, block, stream, {shared}));",
        "  }",
    ]
    return "\n".join(lines)


def _getter(kernel: str, shared: int) -> str:
    """The call that finds a kernel in its module; more shared memory than the default must be asked for."""
    if shared > SHARED_DEFAULT:
        return f'GetKernelWithMaxDynamicSharedMemory("{kernel}", {shared})'
    return f'GetKernel("{kernel}")'


def compute_capability(arch: str) -> int:
    """`sm_90` or `sm_90a` -> 90."""
    found = re.fullmatch(r"sm_(\d+)[af]?", arch)
    assert found is not None
    return int(found[1])
