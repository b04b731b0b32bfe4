"""One engine of benchmarks/language.py; needs nothing but that engine. Rounds are asked for on stdin, answered in JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    kind, path, *rest = sys.argv[1:]
    if kind == "requantize":
        requantize(path, *rest)
        return
    prompt, tokens, threads = map(int, rest[:3])
    started = time.perf_counter()
    size, run = {"ours": ours, "llama": llama, "transformers": transformers}[kind](path, prompt, tokens, threads, *rest[3:])
    loaded = time.perf_counter() - started
    run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"bytes": size, "load": loaded, "peak": peak}), flush=True)
    for _ in sys.stdin:
        prefill, decode = run()
        print(json.dumps({"prefill": prompt / prefill, "decode": tokens / decode}), flush=True)


def ids(prompt: int) -> list[int]:
    return [1000 + 37 * index % 20000 for index in range(prompt)]


def ours(path: str, prompt: int, tokens: int, threads: int) -> tuple[int, Any]:
    """Our runtime."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from pydoit.runtime import load_language_model

    model = load_language_model(path, threads)
    size = sum(item.stat().st_size for item in Path(path, "weights").iterdir())

    def run() -> tuple[float, float]:
        sequence = model.add()
        started = time.perf_counter()
        logits = model.prefill(sequence, ids(prompt))
        middle = time.perf_counter()
        for _ in range(tokens):
            logits = model.decode([sequence], [int(logits.argmax())])[0]
        end = time.perf_counter()
        model.drop(sequence)
        return middle - started, end - middle

    return size, run


def llama(path: str, prompt: int, tokens: int, threads: int, layout: str = "own") -> tuple[int, Any]:
    """llama.cpp by llama-cpp-python's low-level interface, as its own llama-bench drives it.

    With layout "plain" weights stay as they are in the file, without the blocks that its AMX products and others want.
    """
    import llama_cpp
    import numpy as np

    defaults = llama_cpp.llama_model_default_params()
    defaults.use_extra_bufts = layout != "plain"
    llama_cpp.llama_cpp.llama_model_default_params = lambda: defaults
    model = llama_cpp.Llama(path, n_ctx=1024, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)

    def run() -> tuple[float, float]:
        model.reset()
        started = time.perf_counter()
        model.eval(ids(prompt))
        middle = time.perf_counter()
        vocabulary = model.n_vocab()
        for _ in range(tokens):
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(model.ctx), shape=(vocabulary,))
            model.eval([int(logits.argmax())])
        return middle - started, time.perf_counter() - middle

    return Path(path).stat().st_size, run


def transformers(path: str, prompt: int, tokens: int, threads: int, bits: str) -> tuple[int, Any]:
    """transformers with its static cache, eager."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import torch
    from transformers import StaticCache

    from pydoit.models.reference import Reference
    from pydoit.models.spec import CacheSpec, LanguageSpec, WeightSpec
    from pydoit.target import ResolvedTarget

    torch.set_num_threads(threads)
    spec = LanguageSpec(
        source="gguf", cache=CacheSpec(tokens=1024, sequences=1, page_size=16, prefill_chunk=512), kept=WeightSpec(),
        target=ResolvedTarget(kind="cpu", arch="x86-64"),
    )  # fmt: skip
    reference = Reference(spec, Path(path).parent, None, {"bf16": "bfloat16", "fp32": "float32"}[bits])
    model = reference.model
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    cache = StaticCache(config=model.config, max_cache_len=1024)

    @torch.inference_mode()
    def run() -> tuple[float, float]:
        cache.reset()
        started = time.perf_counter()
        given = torch.tensor([ids(prompt)])
        places = torch.arange(prompt)
        logits = model(input_ids=given, past_key_values=cache, cache_position=places, logits_to_keep=1).logits
        middle = time.perf_counter()
        for index in range(tokens):
            token = logits[:, -1:].argmax(-1)
            logits = model(input_ids=token, past_key_values=cache, cache_position=torch.tensor([prompt + index])).logits
        return middle - started, time.perf_counter() - middle

    return size, run


def requantize(source: str, target: str, kind: str) -> None:
    """By llama.cpp; from a quantized file, which it allows on request."""
    import llama_cpp

    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = {"Q8_0": 7, "BF16": 32, "F16": 1, "F32": 0}[kind]
    options.allow_requantize = True
    options.nthread = 2
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), options) != 0:
        raise SystemExit(f"llama.cpp cannot make {kind}")


if __name__ == "__main__":
    main()
