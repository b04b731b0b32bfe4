"""Tiles of the Triton product beside cuBLAS (torch) on this GPU, for the products of a decoder; writes tuning records.

    python benchmarks/triton_matmul.py [--config config.json] [--rows 1,16,32,64,512,2048] [--json FILE] [--records FILE]

Prints the time of each tile that fits, and torch's; defaults are marked. --records writes the best tile of each product
and class of rows where it is at least 2 % faster than the default one, for `tune.records` of a recipe. Whether one row goes
to TVM's GEMV or to Triton is decided by the GEMV's share of the read bandwidth, which --gemv-share gives (measured by
benchmarks/language_gpu.py).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import triton

from pydoit.kernels.triton.choice import Product
from pydoit.kernels.triton.matmul import multiply
from pydoit.kernels.triton.tile import MORE, ROW_CLASSES, Tile, default_tiles
from pydoit.models.config import DecoderConfig, decoder_config, read_values
from pydoit.records import Record, Records, TuningTarget

FEW = (
    Tile(16, 16, 256, 2, 4), Tile(16, 16, 256, 4, 4), Tile(16, 32, 128, 4, 4), Tile(16, 32, 128, 4, 6), Tile(16, 32, 256, 4, 3),
    Tile(16, 64, 128, 4, 4), Tile(16, 64, 128, 4, 5), Tile(32, 32, 128, 4, 4), Tile(32, 32, 256, 4, 3), Tile(32, 64, 128, 4, 4),
    Tile(64, 32, 128, 4, 4), Tile(64, 32, 128, 4, 5), Tile(64, 64, 128, 4, 3), Tile(64, 64, 64, 4, 5), Tile(64, 64, 64, 4, 4),
    Tile(64, 128, 64, 4, 4),
)  # fmt: skip
MANY = (
    Tile(128, 128, 64, 8, 3), Tile(128, 128, 64, 4, 4), Tile(128, 128, 64, 8, 4), Tile(128, 256, 64, 8, 3),
    Tile(128, 256, 64, 8, 4), Tile(64, 256, 64, 4, 4), Tile(64, 128, 64, 4, 4), Tile(256, 128, 64, 8, 3),
)  # fmt: skip
SHARED = 227 * 1024
GAIN = 1.02
"""A tile is recorded where it is faster than the default one by this factor."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("recipes/models/llama3-8b/config.json"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--rows", default="1,16,32,64,512,2048")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--gemv-share", type=float, default=0.97)
    options = parser.parse_args()
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    bandwidth = read_bandwidth()
    print(f"read bandwidth {bandwidth / 1e12:.2f} TB/s")
    results = []
    for product in products(decoder_config(read_values(options.config)), options.dtype):
        for rows in map(int, options.rows.split(",")):
            results += list(measure(product, rows, arch))
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    if options.records:
        records = tuple(best(results, bandwidth * options.gemv_share))
        target = TuningTarget(arch=arch, device=f"{torch.cuda.get_device_name()}, triton {triton.__version__}")
        options.records.write_text(Records(target=target, records=records).to_text())
        print(f"{len(records)} records: {options.records}")


def products(config: DecoderConfig, dtype: str) -> list[Product]:
    """The products of a decoder: queries, keys and values; output; gated unit; down; head."""
    heads = config.heads + 2 * config.kv_heads
    sizes = (
        (heads * config.head_dim, config.hidden, False), (config.hidden, config.heads * config.head_dim, False),
        (config.intermediate, config.hidden, True), (config.hidden, config.intermediate, False),
        (config.vocabulary, config.hidden, False),
    )  # fmt: skip
    return list(dict.fromkeys(Product(n, k, gated, dtype) for n, k, gated in sizes))


def measure(product: Product, rows: int, arch: str) -> Iterator[dict[str, Any]]:
    """Lines of the table for one product and number of rows."""
    n, k, gated = product.n, product.k, product.gated
    torch.manual_seed(0)
    dtype = getattr(torch, product.dtype)
    x = torch.randn(rows, k, device="cuda", dtype=dtype)
    # Several copies of the weights, used in turn: they would stay in the L2 cache otherwise.
    copies = max(2, min(8, int(4e8 // ((2 if gated else 1) * n * k * 2))))
    weights = [torch.randn((2 if gated else 1) * n, k, device="cuda", dtype=dtype) / k**0.5 for _ in range(copies)]
    out = torch.empty(rows, n, device="cuda", dtype=dtype)

    def reference(weight: Any) -> Any:
        both = x @ weight.T
        return torch.nn.functional.silu(both[:, :n]) * both[:, n:] if gated else both

    base = timed(reference, weights)
    flops = 2 * rows * n * k * (2 if gated else 1)
    size = weights[0].numel() * 2
    most = next((most for most in ROW_CLASSES if rows <= most), MORE)
    print(
        f"{product.task(most)}, {rows} rows: torch {base * 1e6:.1f} us, {flops / base / 1e12:.0f} TFLOP/s, "
        f"{size / base / 1e12:.2f} TB/s"
    )
    wanted = reference(weights[0]).float()
    default = replace(default_tiles(arch, n, gated=gated)[ROW_CLASSES.index(most)], most=None)
    for tile in dict.fromkeys((default, *(FEW if rows <= 64 else MANY))):
        if tile.shared_bytes(2, gated=gated) > SHARED or (tile.rows > 16 and tile.rows > 2 * rows):
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
        mark = "*" if tile == default else " "
        print(f"  {mark} {tile.rows:3d}x{tile.columns:3d}x{tile.depth:3d} w{tile.warps} s{tile.stages} "
              f"{seconds * 1e6:8.1f} us {flops / seconds / 1e12:6.0f} TFLOP/s {size / seconds / 1e12:5.2f} TB/s "
              f"{base / seconds:5.2f}x  err {error:.1e}", flush=True)  # fmt: skip
        kept = {key: value for key, value in asdict(tile).items() if key != "most"}
        yield {**asdict(product), "rows": rows, "most": most, "tile": kept, "default": tile == default, "bytes": size,
               "seconds": seconds, "torch": base, "error": error}  # fmt: skip


def best(results: list[dict[str, Any]], gemv_rate: float) -> Iterator[Record]:
    """A record for each product and class of rows whose best tile beats the default; `gemv_rate`: bytes/s of TVM's GEMV."""
    groups: dict[tuple[Product, int], list[dict[str, Any]]] = {}
    for result in results:
        product = Product(result["n"], result["k"], result["gated"], result["dtype"])
        groups.setdefault((product, result["most"]), []).append(result)
    for (product, most), found in groups.items():
        # Several numbers of rows in one class: their sum decides.
        sums: dict[str, float] = {}
        defaults = 0.0
        for result in found:
            text = json.dumps(result["tile"])
            sums[text] = sums.get(text, 0.0) + result["seconds"]
            defaults += result["seconds"] if result["default"] else 0.0
        chosen = min(sums, key=sums.__getitem__)
        gemv = found[0]["bytes"] / gemv_rate
        provider = "tvm" if most == 1 and gemv <= sums[chosen] else "triton"
        if provider == "triton" and sums[chosen] * GAIN > defaults and most != 1:
            continue
        yield Record(
            task=product.task(most), key=product.key(most), decisions={"provider": provider, **json.loads(chosen)},
            microseconds=round(sums[chosen] * 1e6, 1), default_microseconds=round(defaults * 1e6, 1),
        )  # fmt: skip


def read_bandwidth() -> float:
    """Bytes/s of a sum over 4 GB, the best of five."""
    big = torch.ones(2 * 10**9, device="cuda", dtype=torch.bfloat16)
    return big.numel() * 2 / min(timed(lambda part: part.sum(dtype=torch.float32), [big]) for _ in range(5))


def timed(function: Callable[[Any], Any], weights: list[Any]) -> float:
    """Median seconds of a call, from a CUDA graph of one call for each copy of the weights."""
    for weight in weights:
        function(weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for weight in weights:
            function(weight)
    times = []
    for _ in range(7):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(4):
            graph.replay()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / 1e3 / (4 * len(weights)))
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
