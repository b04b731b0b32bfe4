"""Tiles of the Triton product beside cuBLAS (torch) on this GPU, for the layers of Llama 3 8B in bfloat16.

    python benchmarks/triton_matmul.py [--json FILE] [--rows 16,64,512,2048]

Prints the time of each tile that fits, and torch's; tiles of `pydoit.kernels.triton.matmul.tiles` are marked.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton

from pydoit.kernels.triton.matmul import Tile, multiply, tiles

LAYERS = {"qkv": (6144, 4096, False), "gate_up": (14336, 4096, True), "down": (4096, 14336, False)}
FEW = (
    Tile(16, 32, 128, 4, 4), Tile(16, 32, 256, 4, 3), Tile(16, 64, 128, 4, 4), Tile(16, 16, 256, 4, 4),
    Tile(32, 32, 128, 4, 4), Tile(32, 64, 128, 4, 4), Tile(64, 32, 128, 4, 4), Tile(64, 64, 128, 4, 3),
    Tile(64, 64, 64, 4, 5), Tile(64, 128, 64, 4, 4),
)  # fmt: skip
MANY = (
    Tile(128, 128, 64, 8, 3), Tile(128, 128, 64, 4, 4), Tile(128, 128, 64, 8, 4), Tile(128, 256, 64, 8, 3),
    Tile(128, 256, 64, 8, 4), Tile(64, 256, 64, 4, 4), Tile(64, 128, 64, 4, 4), Tile(256, 128, 64, 8, 3),
)  # fmt: skip
SHARED = 227 * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", default="16,64,512,2048")
    options = parser.parse_args()
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    results = []
    for rows in map(int, options.rows.split(",")):
        for name, (n, k, gated) in LAYERS.items():
            results += list(measure(name, rows, n, k, arch, gated=gated))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def measure(name: str, rows: int, n: int, k: int, arch: str, *, gated: bool) -> Iterator[dict[str, Any]]:
    """Rows of the table for one layer."""
    torch.manual_seed(0)
    x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
    # Several copies of the weights, used in turn: they would stay in the L2 cache otherwise.
    weights = [torch.randn((2 if gated else 1) * n, k, device="cuda", dtype=torch.bfloat16) / k**0.5 for _ in range(4)]
    out = torch.empty(rows, n, device="cuda", dtype=torch.bfloat16)

    def reference(weight: Any) -> Any:
        both = x @ weight.T
        return torch.nn.functional.silu(both[:, :n]) * both[:, n:] if gated else both

    base = timed(reference, weights)
    flops = 2 * rows * n * k * (2 if gated else 1)
    size = weights[0].numel() * 2
    print(
        f"{name:8s} {rows:5d} rows  torch {base * 1e6:8.1f} us  {flops / base / 1e12:6.0f} TFLOP/s "
        f"{size / base / 1e12:5.2f} TB/s"
    )
    wanted = reference(weights[0]).float()
    chosen = tiles(arch, n, gated=gated)
    for tile in dict.fromkeys((*chosen, *(FEW if rows <= 64 else MANY))):
        if tile.shared_bytes(2, gated=gated) > SHARED or (tile.most is not None and rows > tile.most):
            continue
        constants = {"N": n, "K": k, "ROWS": tile.rows, "COLUMNS": tile.columns, "DEPTH": tile.depth, "GATED": gated,
                     "BIAS": False, "RESIDUAL": False, "BAND": 8}  # fmt: skip
        grid = (-(-rows // tile.rows) * -(-n // tile.columns),)

        def run(weight: Any, tile: Tile = tile, constants: Any = constants, grid: Any = grid) -> None:
            multiply[grid](x, weight, x, x, out, rows, **constants, num_warps=tile.warps, num_stages=tile.stages)

        try:
            run(weights[0])
            error = float((out.float() - wanted).abs().max() / wanted.abs().max())
            seconds = timed(run, weights)
        except Exception as fault:  # noqa: BLE001 - a tile may not fit; the others are measured
            print("   ", tile, str(fault).splitlines()[0][:90])
            continue
        mark = "*" if tile in chosen else " "
        print(f"  {mark} {tile.rows:3d}x{tile.columns:3d}x{tile.depth:3d} w{tile.warps} s{tile.stages} "
              f"{seconds * 1e6:8.1f} us  "
              f"{flops / seconds / 1e12:6.0f} TFLOP/s {size / seconds / 1e12:5.2f} TB/s  {base / seconds:5.2f}x  "
              f"err {error:.1e}", flush=True)  # fmt: skip
        yield {"layer": name, "rows": rows, "tile": vars(tile), "seconds": seconds, "torch": base, "error": error}


def timed(function: Callable[[Any], Any], weights: list[Any]) -> float:
    """Median seconds of a call."""
    for weight in weights:
        function(weight)
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(4):
            for weight in weights:
                function(weight)
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / 1e3 / (4 * len(weights)))
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
