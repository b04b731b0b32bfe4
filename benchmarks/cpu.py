"""Latency of the checked-in recipes' artifacts beside other engines on the same cores, interleaved in one run.

    doit build && python benchmarks/cpu.py [--peers onnxruntime,openvino,inductor,torch] [--json FILE] [RECIPE[@VARIANT]...]

Each round times a block of calls of one engine, waits until its threads sleep, then a block of the next; the ratio is that
of the medians, its interval a bootstrap over rounds. All engines use the same number of threads, the same inputs and the
precision of the recipe: for bfloat16 those that have none are left out. `inductor` is torch.compile with freezing. No build
of this machine is made meanwhile. Other engines: pip install openvino. The file that --json writes is one that
`[report] peers` in modelbuild.toml may name, so that the reports show it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RECIPES = ("minilm", "efficientnet-lite0", "opennsfw", "resnet50")
PEERS = ("onnxruntime", "openvino", "inductor", "torch")
DISTRIBUTIONS = {**{name: name for name in PEERS}, "inductor": "torch"}
SETTLE_SECONDS = 0.03
"""Engines' threads spin for some milliseconds after a call; the next block starts when they sleep."""
WARM_CALLS = 2

Call = Callable[[], Any]


class Recipe:
    """A built recipe: its artifact, its original model, one real input."""

    def __init__(self, name: str, threads: int) -> None:
        from pydoit.importers.spec import ModelSpec
        from pydoit.session import Session
        from pydoit.workspace import open_workspace

        self.name, self.threads = name, threads
        self.session = Session(open_workspace(ROOT))
        self.session.open([name])
        if self.session.broken:
            sys.exit(str(self.session.broken[name]))
        spec = self.session.node(name, "verify").spec
        self.model = ModelSpec.model_validate(spec["model"])
        self.precision = self.session.loaded[name].target["precision"]
        self.folder = self._model_folder()
        from pydoit import datasets

        self.sample = datasets.load(spec["dataset"], self.model.inputs, 8, 0, self.folder)[0]

    def _model_folder(self) -> Path:
        if self.session.examine(self.name, "fetch") is None:
            sys.exit(f"{self.name} is not built; run `doit build {self.name}` first")
        node = self.session.node(self.name, "import")
        folder = Path(tempfile.mkdtemp(prefix="modelbuild-bench-"))
        views = self.session.builder.lay_out(node, folder)
        sys.path.extend(map(str, [ROOT, *(views["fetch"] / "packages").glob("*")]))
        return views["fetch"] / "model"

    def ours(self) -> Call:
        from pydoit.runtime import load

        model = load(ROOT / "artifacts" / self.name, threads=self.threads)
        return model.bind(self.sample)

    def torch_module(self) -> Any:
        from pydoit.importers import torch, transformers

        build = transformers.build if self.model.source == "transformers" else torch.build
        return torch.prepare(self.model, self.folder, build)[0].eval()

    def onnxruntime(self) -> Call:
        self._needs_float32()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(self._onnx(), options, providers=["CPUExecutionProvider"])
        inputs = {item.name: self._fed(item) for item in session.get_inputs()}
        return lambda: session.run(None, inputs)

    def _needs_float32(self) -> None:
        if self.precision != "float32":
            raise ImportError(f"it has no {self.precision} of its own here")

    def openvino(self) -> Call:
        import openvino

        core = openvino.Core()
        settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if self.precision == "bfloat16" else "f32", "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": 1,
        }  # fmt: skip
        compiled = core.compile_model(core.read_model(self._onnx()), "CPU", settings)
        request = compiled.create_infer_request()
        from pydoit.importers.onnx_inputs import identifier

        inputs = {item.any_name: self.sample[identifier(item.any_name)] for item in compiled.inputs}
        return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)

    def inductor(self) -> Call:
        if self.model.source == "onnx":
            raise ImportError("an ONNX model has no torch form")
        self._needs_float32()
        import torch
        from torch._inductor import config

        config.freezing = True
        torch.set_num_threads(self.threads)
        module = torch.compile(self.torch_module())
        tensors = [torch.from_numpy(self.sample[name]) for name in self.torch_module().inputs]

        def call() -> Any:
            with torch.no_grad():
                return module(*tensors)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
        return call

    def _fed(self, item: Any) -> Any:
        """The sample's array for an input of the session, or the recipe's constant."""
        from pydoit.importers.onnx_inputs import identifier

        name = identifier(item.name)
        if name in self.sample:
            return self.sample[name]
        dtype = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}[item.type]
        return np.full(item.shape, self.model.constants[name], dtype)

    def _onnx(self) -> str:
        if self.model.source == "onnx":
            return str(next(self.folder.glob("*.onnx")).resolve())
        import torch

        path = self.folder.parent / "exported.onnx"
        module = self.torch_module()
        tensors = tuple(torch.from_numpy(self.sample[name]) for name in module.inputs)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            names = list(module.inputs)
            torch.onnx.export(module, tensors, str(path), input_names=names, opset_version=17, dynamo=False)
        return str(path)

    def torch(self) -> Call:
        if self.model.source == "onnx":
            raise ImportError("an ONNX model has no torch form")
        self._needs_float32()
        import torch

        torch.set_num_threads(self.threads)
        module = self.torch_module()
        tensors = [torch.from_numpy(self.sample[name]) for name in module.inputs]

        def call() -> Any:
            with torch.inference_mode():
                return module(*tensors)

        return call


def interleave(calls: dict[str, Call], rounds: int, block: int) -> dict[str, np.ndarray[Any, Any]]:
    """Seconds of every timed call by engine, shaped [rounds, block]."""
    times: dict[str, list[list[float]]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        order = list(calls) if number % 2 else list(calls)[::-1]
        for name in order:
            time.sleep(SETTLE_SECONDS)
            for _ in range(WARM_CALLS):
                calls[name]()
            seconds = []
            for _ in range(block):
                started = time.perf_counter()
                calls[name]()
                seconds.append(time.perf_counter() - started)
            if number:  # the first round warms everything
                times[name].append(seconds)
    return {name: np.array(rows) for name, rows in times.items()}


def ratio(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> tuple[float, list[float]]:
    """Ratio of medians (below 1: we are faster) and its 95 % bootstrap interval over rounds."""
    random = np.random.default_rng(0)
    picks = random.integers(0, len(ours), (1000, len(ours)))
    samples = np.array([np.median(ours[pick]) / np.median(theirs[pick]) for pick in picks])
    return float(np.median(ours) / np.median(theirs)), [float(value) for value in np.percentile(samples, (2.5, 97.5))]


def compare(name: str, peers: list[str], threads: int, rounds: int, block: int) -> list[dict[str, Any]]:
    """Rows of one recipe, one for each peer that is installed."""
    recipe = Recipe(name, threads)
    calls: dict[str, Call] = {"ours": recipe.ours()}
    for peer in peers:
        try:
            calls[peer] = getattr(recipe, peer)()
        except ImportError as error:
            print(f"{name}: {peer} left out: {error}", file=sys.stderr)
    times = interleave(calls, rounds, block)
    rows = []
    for peer in calls:
        if peer == "ours":
            continue
        value, interval = ratio(times["ours"], times[peer])
        rows.append({
            "model": name, "batch": next(iter(recipe.sample.values())).shape[0], "precision": recipe.precision,
            "threads": threads, "ours_ms": round(float(np.median(times["ours"])) * 1e3, 3), "peer": peer,
            "peer_ms": round(float(np.median(times[peer])) * 1e3, 3), "ratio": round(value, 3),
            "ci95": [round(bound, 3) for bound in interval],
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=RECIPES)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--block", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    from pydoit import machine
    from pydoit.tools import cpu_name

    rows = []
    with machine.measuring(lambda _seconds: None):
        for name in arguments.recipes:
            rows += compare(name, arguments.peers.split(","), arguments.threads, arguments.rounds, arguments.block)
    print(f"{cpu_name()}, {arguments.threads} threads, batch 1, medians over {arguments.rounds} rounds")
    print(f"{'model':<20}{'ours ms':>9}  {'peer':<12}{'peer ms':>9}{'ratio':>8}  95 % interval")
    for row in rows:
        low, high = row["ci95"]
        print(f"{row['model']:<20}{row['ours_ms']:>9}  {row['peer']:<12}{row['peer_ms']:>9}{row['ratio']:>8}  {low} .. {high}")
    if arguments.json:
        measured = {"device": cpu_name(), "date": datetime.now(UTC).date().isoformat()}
        document = {"schema": 1, "rows": [{**row, "version": version(DISTRIBUTIONS[row["peer"]]), **measured} for row in rows]}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
