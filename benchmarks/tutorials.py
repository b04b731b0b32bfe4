"""The steps of docs/tutorial-resnet50.md and docs/tutorial-llama.md: `python benchmarks/tutorials.py resnet50|smollm2`.

Each step is a change of the recipe. Prints a Markdown table: calls of kernels, bytes of intermediates and of their plan, bytes
of weights, the median latency, and what the diagnosis says first. Run `doit doctor --calibrate` before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

NONE = 'tune.records="recipes/tuning/none.json"'
STEPS: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {
    "resnet50": [
        ("every operator a kernel", "resnet50", ('passes.preset="O0"', NONE, "profile.repeat=10")),
        ("fused", "resnet50", ('passes.preset="O1"', NONE, "profile.repeat=10")),
        ("channels last, packed weights", "resnet50", ('passes.preset="O2"', NONE)),
        ("tuned", "resnet50", ()),
        ("oneDNN", "resnet50@onednn", ()),
        ("oneDNN, bfloat16", "resnet50@bfloat16", ()),
    ],
    "smollm2": [
        ("float32", "smollm2", ()),
        ("bfloat16", "smollm2@bfloat16", ()),
        ("int8", "smollm2@int8", ()),
        ("int4", "smollm2@int4", ()),
    ],
}


def main(names: list[str]) -> None:
    """Measure and print."""
    for name in names or list(STEPS):
        print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        for label, recipe, sets in STEPS[name]:
            print(f"| {' | '.join([label, *row(recipe, sets)])} |", flush=True)


COLUMNS = ("step", "calls", "intermediates MB", "planned MB", "weights MB", "median ms", "first finding")


def row(recipe: str, sets: tuple[str, ...]) -> Iterator[str]:
    """The figures of one step."""
    chosen = [argument for assignment in sets for argument in ("--set", assignment)]
    subprocess.run(["doit", "profile", recipe, *chosen], check=True, stdout=subprocess.DEVNULL)
    report = json.loads(_output("doit", "report", recipe, "--format", "json"))
    profile: dict[str, Any] = report["profile"]
    memory = profile.get("memory") or {}
    yield str(sum(kernel["calls"] for kernel in profile["kernels"]))
    yield from (_megabytes(memory.get(key)) for key in ("intermediate_bytes", "planned_bytes"))
    yield _megabytes(sum(kernel.get("weight_bytes", 0) for kernel in profile["kernels"]))
    yield f"{profile['latency_ms']['median']:.2f}"
    findings = (report.get("diagnosis") or {}).get("findings") or []
    yield f"{findings[0]['class']}: {findings[0]['kind']} of `{findings[0]['kernel']}`" if findings else "none"


def _megabytes(count: float | None) -> str:
    return "" if count is None else f"{count / 1e6:.1f}"


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(sys.argv[1:])
