"""Measures the largest resident memory of the import stage, in a process of its own, against the size of the weights.

python benchmarks/import_memory.py [--gigabytes 1.0]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BOUND = 2.2
"""Largest peak as a multiple of the weights' size."""

CHILD = """
import json, resource, sys
from pathlib import Path
from pydoit.stages import import_
spec = import_.Spec.model_validate(json.loads(sys.argv[1]))
measured = import_.run(spec, {"fetch": Path(sys.argv[2])}, Path(sys.argv[3]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"bytes": measured["parameter_bytes"], "peak": peak}))
"""


def run(arguments: list[str]) -> int:
    """Measure a Llama of that size with made-up weights and with weights from a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    options = parser.parse_args(arguments)
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "fetch/model").mkdir(parents=True)
        _write_config(folder / "fetch/model", options.gigabytes)
        for weights in ("random:0", None):
            if weights is None:
                _write_weights(folder / "fetch/model")
            measured = _measure(weights, folder)
            ratio = measured["peak"] / measured["bytes"]
            worst = max(worst, ratio)
            kind = "made-up weights" if weights else "weights from safetensors"
            print(
                f"{kind}: {measured['bytes'] / 1e9:.2f} GB, peak {measured['peak'] / 1e9:.2f} GB, {ratio:.2f} times", flush=True
            )
    return 0 if worst <= BOUND else 1


def _write_config(folder: Path, gigabytes: float) -> None:
    import transformers

    width, vocabulary = 1024, 32000
    layer = 4 * width * width + 3 * width * 4 * width
    layers = max(1, round((gigabytes * 1e9 / 4 - 2 * vocabulary * width) / layer))
    transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
        num_attention_heads=8, num_key_value_heads=8, tie_word_embeddings=False,
    ).save_pretrained(folder)  # fmt: skip


def _write_weights(folder: Path) -> None:
    code = (
        "import sys, torch, transformers\n"
        "config = transformers.AutoConfig.from_pretrained(sys.argv[1])\n"
        "transformers.AutoModelForCausalLM.from_config(config).save_pretrained(sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(folder)], check=True, capture_output=True)


def _measure(weights: str | None, folder: Path) -> dict[str, Any]:
    model = {
        "source": "transformers",
        "auto_class": "AutoModelForCausalLM",
        "weights": weights,
        "inputs": {"input_ids": {"shape": [1, 16], "dtype": "int64", "range": [0, 31999]}},
        "outputs": ["logits"],
    }
    out = folder / "import"
    out.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", CHILD, json.dumps(model), str(folder / "fetch"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    measured: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return measured


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
