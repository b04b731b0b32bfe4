"""Linear layers of language models on this CPU: time, share of the read bandwidth, arithmetic rate, compile time.

    python benchmarks/cpu_kernels.py [--shapes 576x576,...] [--formats int8,int4-32-asym] [--rows 1,128] [--threads 2]

Every layer is timed over copies of its weights that together exceed the caches, so that weights come from memory, as they
do in a model. The read bandwidth is that of a summation over 512 MiB, measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = "960x576,576x576,3072x576,576x1536,49152x576"
FORMATS = "float32,bfloat16,int8,int8-32,int4-32-asym,int4-128"
BEYOND_CACHES = 192 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=SHAPES, help="n x k of the layers")
    parser.add_argument("--formats", default=FORMATS, help="dtype[-group[-asym]]")
    parser.add_argument("--rows", default="1,128")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(options.threads)
    from pydoit.target import ResolvedTarget, resolve_arch

    target = ResolvedTarget(kind="cpu", arch=resolve_arch("cpu", "native"))
    bandwidth = read_bandwidth(options.threads)
    print(f"{target.arch}, {options.threads} threads, read bandwidth {bandwidth / 1e9:.1f} GB/s")
    results = []
    for shape in options.shapes.split(","):
        n, k = map(int, shape.split("x"))
        for name in options.formats.split(","):
            for rows in map(int, options.rows.split(",")):
                item = {"n": n, "k": k, "format": name, "rows": rows, **measure(name, n, k, rows, target, options.repeat)}
                item["bandwidth"] = item["bytes"] / item["seconds"] / bandwidth
                results.append(item)
                print(f"{n:6d}x{k:<5d} {name:13s} {rows:4d} rows {item['seconds'] * 1e6:9.1f} us  "
                      f"{item['bytes'] / item['seconds'] / 1e9:6.1f} GB/s {100 * item['bandwidth']:4.0f} %  "
                      f"{2 * rows * n * k / item['seconds'] / 1e9:7.1f} GFLOP/s  compiled in {item['compile_seconds']:.1f} s",
                      flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps({"bandwidth": bandwidth, "results": results}, indent=1))


def measure(name: str, n: int, k: int, rows: int, target: Any, repeat: int) -> dict[str, Any]:
    """Median seconds of a layer."""
    from pydoit.kernels.cpu.linear import linear
    from pydoit.kernels.cpu.weight_format import WeightFormat, pack
    from pydoit.kernels.lowering import compile_module
    from pydoit.target import CPU_LANES, make_tvm_target
    from pydoit.tvm_compat import IRModule, tirx, tvm

    dtype, *rest = name.split("-")
    chosen = WeightFormat(dtype, int(rest[0]) if rest else None, symmetric="asym" not in rest)
    generator = np.random.default_rng(0)
    weights = generator.normal(size=(n, k)).astype(np.float32)
    packed = list(pack(chosen, weights, CPU_LANES[target.arch]).values())
    size = sum(array.nbytes for array in packed)
    copies = [[tvm.runtime.tensor(array) for array in packed] for _ in range(max(1, BEYOND_CACHES // size))]
    x = tvm.runtime.tensor(generator.normal(size=(rows, k)).astype(np.float32))
    out = tvm.runtime.tensor(np.zeros((rows, n), np.float32))
    started = time.perf_counter()
    function = linear(chosen, 1 if rows == 1 else tirx.Var("rows", "int64"), n, k, target)
    kernel = compile_module(IRModule({"linear": function}), make_tvm_target(target))["linear"]
    compiled = time.perf_counter() - started
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        for arrays in copies:
            kernel(x, *arrays, out)
        times.append((time.perf_counter() - started) / len(copies))
    return {"seconds": sorted(times[1:])[len(times[1:]) // 2], "bytes": size, "compile_seconds": compiled}


def read_bandwidth(threads: int) -> float:
    """Bytes a second that `threads` threads read from memory, the best of some sums over 512 MiB."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    values = torch.ones(1 << 27, dtype=torch.float32)
    times = []
    for _ in range(8):
        started = time.perf_counter()
        values.sum()
        times.append(time.perf_counter() - started)
    torch.set_num_threads(before)
    return values.nbytes / min(times)


if __name__ == "__main__":
    main()
