"""Language models on this CPU beside llama.cpp and transformers, at the same bits, interleaved.

    python benchmarks/language.py [--rounds 5] [--prompt 128] [--tokens 64] [--llama PYTHON] [--json FILE]

Needs built artifacts of smollm2 and its variants. `--llama` names the Python of an environment that has llama-cpp-python
and gguf; its files are made from the recipe's GGUF file by llama.cpp's own quantization. Every engine runs in a process of
its own that waits between rounds; a round asks each in turn, so that a busy machine disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ARTIFACTS = {"int4": "smollm2@int4", "int8": "smollm2@int8", "bf16": "smollm2@bfloat16", "fp32": "smollm2"}
LLAMA = {"int4": "Q4_1", "int8": "Q8_0", "bf16": "BF16", "fp32": "F32"}


class Engine:
    """A process of language_engine.py."""

    def __init__(self, name: str, bits: str, command: list[str]) -> None:
        self.name, self.bits = name, bits
        self.prefill: list[float] = []
        self.decode: list[float] = []
        self._process = subprocess.Popen(
            [command[0], str(HERE / "language_engine.py"), *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.info = self._ask()

    def round(self) -> None:
        """One prefill and one decode."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        found = self._ask()
        self.prefill.append(found["prefill"])
        self.decode.append(found["decode"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise SystemExit(f"{self.name} {self.bits} ended")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bits", default="int4,int8,bf16,fp32")
    parser.add_argument("--llama", help="Python with llama-cpp-python and gguf")
    parser.add_argument("--gguf", type=Path, help="the recipe's GGUF file")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir(), "language-benchmark"), help="for requantized files"
    )
    parser.add_argument("--transformers", action="store_true", help="measure transformers too (static cache, eager)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    from benchmarks.cpu_kernels import read_bandwidth
    from pydoit.tools import cpu_name

    sizes = [str(options.prompt), str(options.tokens), str(options.threads)]
    engines = []
    for bits in options.bits.split(","):
        engines.append(Engine("ours", bits, [sys.executable, "ours", str(HERE.parent / "artifacts" / ARTIFACTS[bits]), *sizes]))
        if options.llama:
            file = requantized(options.llama, options.gguf, LLAMA[bits], options.folder)
            engines.append(llama(bits, [options.llama, "llama", str(file), *sizes]))
        if options.transformers and bits in ("bf16", "fp32"):
            engines.append(Engine("transformers", bits, [sys.executable, "transformers", str(options.gguf), *sizes, bits]))
    bandwidths = []
    for number in range(options.rounds):
        bandwidths.append(read_bandwidth(options.threads))
        for engine in engines if number % 2 == 0 else engines[::-1]:
            engine.round()
    for engine in engines:
        engine.close()
    bandwidth = sorted(bandwidths)[len(bandwidths) // 2]
    print(f"{cpu_name()}, {options.threads} threads, read bandwidth {bandwidth / 1e9:.1f} GB/s (median of rounds)")
    table = []
    for engine in engines:
        ours = next(item for item in engines if item.name == "ours" and item.bits == engine.bits)
        prefill, decode = median(engine.prefill), median(engine.decode)
        size = engine.info["bytes"]
        row = {
            "engine": engine.name,
            "bits": engine.bits,
            "prefill": prefill,
            "decode": decode,
            "bytes": size,
            "share": decode * size / bandwidth,
            "prefill_ratio": median([a / b for a, b in zip(ours.prefill, engine.prefill, strict=True)]),
            "decode_ratio": median([a / b for a, b in zip(ours.decode, engine.decode, strict=True)]),
            "decode_range": [min(engine.decode), max(engine.decode)],
            **engine.info,
        }
        table.append(row)
        print(
            f"{engine.bits:5s} {engine.name:13s} prefill {options.prompt}: {prefill:7.1f} tokens/s   "
            f"decode {decode:6.1f} tokens/s "
            f"({row['decode_range'][0]:.1f}-{row['decode_range'][1]:.1f}), {100 * row['share']:3.0f} % of the bandwidth; "
            f"ours is {row['prefill_ratio']:.2f}x, {row['decode_ratio']:.2f}x; load {engine.info['load']:.2f} s, "
            f"peak {engine.info['peak'] / 2**20:.0f} MiB"
        )
    if options.json:
        options.json.write_text(json.dumps({"bandwidth": bandwidth, "table": table}, indent=1))


def llama(bits: str, command: list[str]) -> Engine:
    """llama.cpp as it comes; where that does not survive its own AMX products, with weights as they are in the file."""
    try:
        return Engine("llama.cpp", bits, command)
    except SystemExit:
        print(f"llama.cpp {bits} crashes with weights in its own layout; measured with plain ones", flush=True)
        return Engine("llama.cpp", bits, [*command, "plain"])


def requantized(python: str, source: Path, kind: str, folder: Path) -> Path:
    """The GGUF file with its matrices in another type."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{source.stem}-{kind}.gguf"
    if kind == "Q4_1":
        return source
    if not target.is_file():
        subprocess.run([python, str(HERE / "language_engine.py"), "requantize", str(source), str(target), kind], check=True)
    return target


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
