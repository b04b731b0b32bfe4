"""providers: who computes each convolution and product faster, oneDNN or TVM; run by `doit tune`, no part of a build."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.errors import ModelBuildError
from pydoit.frozen import Frozen
from pydoit.measure import interleaved, repeats_of
from pydoit.stages.compare import SHORTEST_SECONDS, WARMUP
from pydoit.target import ResolvedTarget
from pydoit.tools import ONEDNN
from pydoit.worker import progress

TOOLS = ("apache-tvm", "apache-tvm-ffi", ONEDNN, "c++")
READS = {"import": ("module.json", "spec.json")}
ROUNDS = 15
LEAST_GAIN = 0.97
"""oneDNN is chosen where its time is below this part of TVM's."""


class Spec(Frozen):
    """What is compared."""

    passes: tuple[str | dict[str, Any], ...]
    """The recipe's order; OffloadOneDnn's options in it say which operators are open."""
    target: ResolvedTarget
    """What the candidates are compiled for, and the threads that run them."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write records.json: the schedules of inputs["records"], for machines without oneDNN too, and a provider an operator."""
    from pydoit import lifting
    from pydoit.passes.running import run_passes
    from pydoit.records import Records, read_records
    from pydoit.target import make_tvm_target
    from pydoit.tvm_compat import load_json

    described = json.loads((inputs["import"] / "spec.json").read_bytes())
    module = load_json((inputs["import"] / "module.json").read_text(encoding="utf-8"))
    module = lifting.mark_inputs(module, len(described["inputs"]))
    names = [use if isinstance(use, str) else use["name"] for use in spec.passes]
    place = names.index("OffloadOneDnn")
    given = read_records(inputs["records"])
    schedules = [record for record in given.records if "provider" not in record.decisions]
    with make_tvm_target(spec.target):
        before, _, _ = run_passes(spec.passes[:place], module)
        found = _compare(spec, place, before["main"], {record.key: record.decisions for record in schedules}, out)
    (out / "records.json").write_text(Records(target=given.target, records=(*schedules, *found)).to_text(), encoding="utf-8")
    chosen = sum(record.decisions["provider"] == "onednn" for record in found)
    return {"compared": len(found), "onednn": chosen, "records": len(schedules) + len(found)}


def _compare(spec: Spec, place: int, function: Any, schedules: Mapping[str, Any], out: Path) -> list[Any]:
    """A record for each distinct operator that is open."""
    from pydoit.kernels.onednn.candidates import compile_candidate, module_of
    from pydoit.passes.offload_onednn import find_chains
    from pydoit.records import Record

    offload = spec.passes[place]
    options = dict(offload) if isinstance(offload, dict) else {"name": offload}
    precision = options.get("precision", "float32")
    sites: dict[str, tuple[Any, Any]] = {}
    for chain in find_chains(function):
        site = chain.site(precision)
        if options.get(site.operator, "auto") == "auto":
            sites.setdefault(site.key, (site, chain))
    records = []
    for number, (key, (site, chain)) in enumerate(sites.items(), start=1):
        calls = {}
        for provider in ("tvm", "onednn"):
            use = {"name": "OffloadOneDnn", "conv2d": provider, "matmul": provider, "precision": precision}
            order = (use, *spec.passes[place + 1 :])
            try:
                folder = out / f"{number}-{provider}"
                calls[provider] = compile_candidate(module_of(chain, function), order, spec.target, schedules, folder)
            except ModelBuildError as error:
                progress(f"{site.task}: {provider} left out: {error}")
        if len(calls) == len(("tvm", "onednn")):
            record = _timed(Record, site, key, calls)
            records.append(record)
            times = f"{record.microseconds:.0f} us (TVM {record.default_microseconds:.0f})"
            progress(f"operator {number}/{len(sites)} {site.task}: {record.decisions['provider']}, {times}")
    _remove(out)
    return records


def _timed(make: Any, site: Any, key: str, calls: Mapping[str, Any]) -> Any:
    """The record of one operator: the least of samples in turn, since other work hits threads that wait unevenly."""
    ordered = [calls[provider] for provider in ("tvm", "onednn")]
    repeats = [repeats_of(call, warmup=WARMUP, seconds=SHORTEST_SECONDS) for call in ordered]
    tvm, onednn = (min(times) * 1e3 for times in interleaved(ordered, repeats, ROUNDS))
    provider = "onednn" if onednn < LEAST_GAIN * tvm else "tvm"
    best = onednn if provider == "onednn" else tvm
    return make(
        task=site.task, key=key, decisions={"provider": provider}, microseconds=round(best, 2),
        default_microseconds=round(tvm, 2),
    )  # fmt: skip


def _remove(out: Path) -> None:
    import shutil

    for folder in out.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
