"""Reports as builds write them: a real one, one with everything, a language model's, and hostile ones."""

from __future__ import annotations

import copy
import json
import math
import random
from pathlib import Path
from typing import Any

BUILT = Path(__file__).with_name("opennsfw.json")
"""What a build of the recipe opennsfw wrote, on 2 cores with AVX-512."""
HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(2)>",
    "a & b <b>bold</b> ]]> --> </style></script></svg>",
    "{{ 7 * 7 }} {% raw %} ${x} `y` | z",
    "ядро_свёртки_核函数_🚀_é",
    "right\u202eto left \x00 \x1b[31m \ud800 end",
    "x" * 20_000,
    "",
)


def built_report() -> dict[str, Any]:
    """The real report."""
    report: dict[str, Any] = json.loads(BUILT.read_bytes())
    return report


def full_report(count: int = 0) -> dict[str, Any]:
    """The real report with all that a profile and a diagnosis add; with `count` kernels in place of its own."""
    report = built_report()
    if count:
        report["profile"]["kernels"] = [
            {"name": f"fused_conv2d{index}_add{index % 7}_relu", "calls": 1 + index % 3} for index in range(count)
        ]
    _add_kernels(report["profile"], random.Random(1))
    _add_memory(report["profile"], random.Random(2))
    report["diagnosis"] = _diagnosis(report)
    median = report["profile"]["latency_ms"]["median"]
    report["previous"] = {
        "time": "2026-12-02T17:04:11+00:00", "changed": "config.records: 5d2c81aa90ff -> none",
        "figures": {"latency_ms": median * 1.31, "p95_ms": median * 1.4, "peak_memory_bytes": 171_000_000,
                    "artifact_bytes": 24_100_000, "library_bytes": 324_112, "max_abs": 1.1e-7, "cosine": 1.0},
    }  # fmt: skip
    report["locked"] = {
        "files": {"lib.so": 324_000, "manifest.json": 14_000}, "is_current": False, "time": "2026-11-20T09:00:00+00:00",
        "figures": {"latency_ms": median * 0.97, "p95_ms": median * 1.05, "artifact_bytes": 24_100_000, "library_bytes": 324_000},
    }  # fmt: skip
    report["peers"] = [
        {"model": "opennsfw", "peer": "onnxruntime", "version": "1.32.0", "ours_ms": 13.40, "peer_ms": 13.47, "ratio": 0.995,
         "ci95": [0.976, 1.007], "threads": 2, "precision": "float32", "date": "2026-12-01", "device": "Intel Xeon (Sapphire Rapids)"},
        {"model": "opennsfw", "peer": "torch", "version": "2.13.0", "ours_ms": 13.40, "peer_ms": 31.9, "ratio": 0.42,
         "ci95": [0.40, 0.455], "threads": 2, "precision": "float32", "date": "2026-12-01"},
        {"model": "opennsfw", "peer": "openvino", "ours_ms": 13.40, "peer_ms": 11.9, "ratio": 1.126, "ci95": [1.08, 1.17]},
    ]  # fmt: skip
    return report


def _add_kernels(profile: dict[str, Any], source: random.Random) -> None:
    kernels = profile["kernels"]
    for rank, kernel in enumerate(kernels):
        kernel["ms"] = profile["latency_ms"]["median"] * source.lognormvariate(0, 0.6) / (1 + rank) ** 0.9 / 3
    kernels.sort(key=lambda kernel: -kernel["ms"])
    total = sum(kernel["ms"] for kernel in kernels) or 1.0
    for rank, kernel in enumerate(kernels):
        computes = "conv2d" in kernel["name"] or rank % 4 == 0
        kernel["share"] = kernel["ms"] / total
        kernel["flops"] = kernel["ms"] * source.uniform(0.5, 1.6) * 1e8 if computes else 0
        kernel["bytes"] = kernel["ms"] * source.uniform(0.3, 2.0) * 2e6
        kernel["intensity"] = kernel["flops"] / kernel["bytes"] if kernel["flops"] else None
        kernel["bound"] = ("compute" if computes and rank % 5 else "memory") if rank % 9 else "launch"
        kernel["bound_ms"] = kernel["ms"] * source.uniform(0.4, 0.95)
        kernel["headroom_ms"] = kernel["ms"] - kernel["bound_ms"]
        kernel["speedup"] = source.uniform(1.1, 1.95)
    order = [kernel for kernel in kernels for _ in range(kernel["calls"])]
    source.shuffle(order)
    at, profile["timeline"] = 0.02, []
    for kernel in order:
        ms = kernel["ms"] / kernel["calls"]
        profile["timeline"].append({"kernel": kernel["name"], "start_ms": round(at, 5), "ms": round(ms, 5)})
        at += ms + source.uniform(0.001, 0.01)
    profile["trace"] = {
        "plain_ms": profile["latency_ms"]["median"],
        "traced_ms": at,
        "kernels_ms": total,
        "gaps_ms": at - total,
    }
    profile["ceilings"] = {
        "device": profile["device"], "threads": 2, "copy": 11.2e9, "call_seconds": 1.4e-6,
        "bandwidth": [{"bytes": size, "read": read} for size, read in (
            (32 << 10, 410e9), (256 << 10, 395e9), (1 << 20, 210e9), (8 << 20, 61e9), (64 << 20, 24e9), (512 << 20, 17.5e9))],
        "flops": {"float32": 208e9, "bfloat16": 2.6e12, "int8": 5.1e12},
    }  # fmt: skip


def _add_memory(profile: dict[str, Any], source: random.Random) -> None:
    steps = len(profile["timeline"])
    tensors = []
    for step in range(max(steps - 1, 0)):
        size = int(3_200_000 * math.exp(-2.2 * step / steps) * source.uniform(0.2, 1.0)) // 64 * 64
        dies = min(step + 1 + (source.randrange(2, 6) if step % 5 == 0 else 0), steps - 1)
        tensors.append({"name": f"lv{step}", "bytes": size, "born": step, "dies": dies})
    live = max(
        (sum(t["bytes"] for t in tensors if t["born"] <= step <= t["dies"]) for step in range(min(steps, 300))), default=0
    )
    profile["memory"] = {"planned_bytes": int(live * 1.2), "live_bytes": live, "intermediate_bytes": sum(t["bytes"] for t in tensors),
                         "tensors": tensors}  # fmt: skip


def _diagnosis(report: dict[str, Any]) -> dict[str, Any]:
    kernels = report["profile"]["kernels"]
    first = kernels[0]["name"] if kernels else None
    return {
        "bottleneck": {"class": "compute", "text": "71 % of the kernels' time is bound by arithmetic, at 58 % of the float32 peak"},
        "findings": [
            {"class": "compute", "kind": "unvectorized", "kernel": first, "title": f"{first} runs mostly in scalar code",
             "evidence": [{"name": "share of the work in vectors", "value": 0.08, "unit": "", "threshold": 0.5, "source": "loops of the scheduled TIR"},
                          {"name": "time", "value": 3.9, "unit": "ms", "threshold": None, "source": "median of 15 traced runs"}],
             "change": "Search a schedule for it, or let oneDNN compute it.", "assignments": [['kernels.conv2d="onednn"', 'kernels.matmul="onednn"'], ["tune.trials=64"]], "gain_ms": 2.4},
            {"class": "memory", "kind": "layout", "kernel": None, "title": "Copies between layouts take 9 % of the time", "evidence": [],
             "change": "Add ConvertLayout to the passes.", "assignments": [['passes.preset="O3"']], "gain_ms": None},
        ],
    }  # fmt: skip


def language_report() -> dict[str, Any]:
    """Of a language model: prefill and decode in place of one call, metrics of text, a quantized recipe."""
    report = built_report()
    report["recipe"] = "smollm2@int8"
    spread = {"median": 33.7, "p95": 36.2, "min": 31.9, "mean": 34.0, "max": 39.9, "n": 30}

    def scaled(factor: float) -> dict[str, float]:
        return {name: value if name == "n" else value * factor for name, value in spread.items()}

    report["profile"] = {
        "device": report["profile"]["device"], "threads": 2, "latency_ms": spread, "throughput": 29.6,
        "prefill": [{"prompt": size, "latency_ms": scaled(size / 20), "tokens_per_second": 590.0 - size / 8} for size in (128, 512)],
        "decode": [{"context": 128, "sequences": count, "latency_ms": scaled(1 + count / 6), "tokens_per_second": 29.6 * count * 0.8,
                    "kv_cache": {"utilization": count / 8, "fragmentation": 0.0625}}
                   for count in (1, 4, 8)],
        "load_ms": 812.5, "weight_bytes": 144_000_000, "cache_bytes": 94_371_840, "peak_memory_bytes": 411_000_000, "passed": True,
    }  # fmt: skip
    report["verify"] = {
        "passed": True, "reference": "transformers float32 on cpu", "seed": 0, "samples": 4, "positions": 2048, "max_abs": 0.41, "max_rel": 0.012,
        "cosine": 0.9946, "not_finite": 0, "distinct_outputs": 8, "top1": 0.978, "divergence": 0.0011, "perplexity": 12.41,
        "reference_perplexity": 12.38, "perplexity_change": 0.0024, "prompts": 10, "greedy": 0.86, "chunked_max_abs": 1e-5, "batched_max_abs": 2e-5,
        "tolerance": {"max_abs": 1.0, "top1": 0.97, "divergence": 0.005, "perplexity": 0.005},
        "layers": [{"name": f"layers.{index}", "max_abs": 1e-4 * 1.3**index, "cosine": 1 - 1e-6 * index} for index in range(30)],
    }  # fmt: skip
    report["recipe_values"]["quantization"] = {"scheme": "int8", "group_size": 32, "symmetric": True, "exclude": ["layers.0.*"]}
    report["measurements"]["import"]["parameters"] = 134_515_008
    report["measurements"]["weights"] = {"tensors": 272, "bytes": 144_000_000}
    report["measurements"]["quantization"] = {"layers": [
        {"name": f"layers.{index}.mlp.down_proj", "scheme": "int8" if index else "float32", "bytes_before": 3_538_944, "bytes": 995_328 if index else 3_538_944,
         "error": 0.003 + index / 10_000, "nearest_error": 0.004 + index / 10_000, "sqnr_db": 50.5, "speedup": 1.8 if index else None, "reason": "" if index else "excluded by the recipe"} for index in range(30)]}  # fmt: skip
    return report


def hostile_report() -> dict[str, Any]:
    """Names that are markup, templates, other scripts, without shape, very long or empty, wherever names can stand."""
    report = full_report(len(HOSTILE))
    report["recipe"] = HOSTILE[0]
    for kernel, name in zip(report["profile"]["kernels"], HOSTILE, strict=True):
        kernel["name"] = name
    for index, item in enumerate(report["profile"]["timeline"]):
        item["kernel"] = HOSTILE[index % len(HOSTILE)]
    for index, item in enumerate(report["profile"]["memory"]["tensors"]):
        item["name"] = HOSTILE[index % len(HOSTILE)]
    for index, item in enumerate(report["measurements"]["optimize"]["passes"]):
        item["name"], item["options"] = HOSTILE[index % len(HOSTILE)], {HOSTILE[0]: HOSTILE[1]}
    for index, stage in enumerate(report["stages"]):
        stage["reason"] = HOSTILE[index % len(HOSTILE)]
    report["profile"]["device"], report["verify"]["reference"] = HOSTILE[1], HOSTILE[2]
    report["verify"]["outputs"] = {name: {"max_abs": 1e-6, "cosine": 1.0} for name in HOSTILE}
    report["recipe_values"] = {name: {"value": name, "list": list(HOSTILE[:3])} for name in HOSTILE}
    report["environment"]["tools"] = {name: name for name in HOSTILE}
    for finding in report["diagnosis"]["findings"]:
        finding.update(title=HOSTILE[0], change=HOSTILE[1], assignments=[[HOSTILE[2]]], kernel=HOSTILE[3])
    report["peers"][0]["peer"], report["previous"]["changed"] = HOSTILE[0], HOSTILE[1]
    return report


def damaged_reports() -> list[dict[str, Any]]:
    """Reports from which parts are missing, null, not finite or of another type."""
    whole = full_report()
    found: list[dict[str, Any]] = [{}, {"recipe": "bare", "stages": []}]
    sections = ("profile", "verify", "diagnosis", "previous", "locked", "measurements", "environment")
    for value in (None, [], {}, "text", math.nan, -1.0, True):
        found += [{**whole, key: value} for key in whole]
        found += [{**whole, section: {**whole[section], key: value}} for section in sections for key in whole[section]]
    kernels = copy.deepcopy(whole)
    for index, kernel in enumerate(kernels["profile"]["kernels"]):
        for key in kernel:
            if index % 2:
                kernel[key] = (None, math.nan, math.inf, 0, "x")[index % 5]
    return [*found, kernels]
