"""onnx's own backend node tests through import, optimize (O2), compile (x86-64-v3), weights and the runtime."""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

SECONDS = 60.0
"""A case that takes longer has failed."""
Bodies = Mapping[str, Sequence[onnx.NodeProto]]
ARCH = "x86-64-v3"
SUB_BYTE = ("INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1")


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    name: str
    operator: str
    status: str
    """passed, failed or excluded."""
    reason: str = ""

    @property
    def expanded(self) -> bool:
        """Whether the case is an operator's function body."""
        return "_expanded" in self.name


def cases() -> list[Any]:
    """All node cases of the installed onnx, by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases divide by zero on purpose
        return sorted(collect_testcases(None), key=lambda case: case.name)


def operator(case: Any) -> str:
    """The operator that a case tests; an expanded form is listed under the operator that it is the body of."""
    if "_expanded" in case.name:
        return "(function bodies)"
    node = case.model.graph.node[0]
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def exclusion(case: Any) -> str | None:
    """Why the suite leaves a case out: a kind of value that the runtime does not have."""
    graph = case.model.graph
    for item in (*graph.input, *graph.output, *graph.value_info):
        kind = item.type.WhichOneof("value")
        if kind != "tensor_type":
            return f"{kind.removesuffix('_type')} values"
        name = onnx.TensorProto.DataType.Name(item.type.tensor_type.elem_type)
        if name == "STRING":
            return "strings"
        if name in SUB_BYTE:
            return "sub-byte types"
    if any(_is_sequence(node) for node in _all_nodes(graph)):
        return "sequence values"
    if any(_names_sub_byte(node) for node in _all_nodes(graph)):
        return "sub-byte types"
    return None


def bind_operands(
    model: onnx.ModelProto, arrays: dict[str, Any], nodes: Sequence[onnx.NodeProto]
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Make initializers of the inputs that decide on shapes (Reshape's shape, Pad's pads): a recipe binds them.

    `nodes` are the model's own, and for a function body the operator's that it is the body of.
    """
    from pydoit.importers.onnx_ops.static import static_operands

    bound = {name for node in nodes for name in static_operands(node)} & set(arrays)
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    del copy.graph.input[:]
    copy.graph.input.extend(item for item in model.graph.input if item.name not in bound)
    copy.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(arrays[n]), n) for n in sorted(bound))
    return copy, {name: array for name, array in arrays.items() if name not in bound}


def operators_of_bodies(everything: list[Any]) -> Bodies:
    """Name of each function body's case -> the nodes of the case that it is the expansion of."""
    plain = {case.name: case for case in everything}
    found = {case.name: plain.get(case.name.split("_expanded")[0]) for case in everything if "_expanded" in case.name}
    return {name: list(case.model.graph.node) for name, case in found.items() if case is not None}


def check(case: Any, bodies: Bodies) -> Outcome:
    """Run one case; raises nothing of its own."""
    from pydoit.errors import ModelBuildError

    given, expected = ([as_array(item) for item in items] for items in case.data_sets[0])
    arrays = dict(zip((item.name for item in case.model.graph.input), given, strict=False))
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, arrays = bind_operands(case.model, arrays, [*case.model.graph.node, *bodies.get(case.name, ())])
            found = compute(model, arrays, Path(folder))
        for name, actual, wanted in zip((item.name for item in case.model.graph.output), found, expected, strict=True):
            compare(name, actual, np.asarray(wanted), case)
    except (ModelBuildError, AssertionError) as error:
        return Outcome(case.name, operator(case), "failed", first_line(error))
    except Exception as error:  # noqa: BLE001 - the table says what a user would see
        return Outcome(case.name, operator(case), "failed", f"{type(error).__name__}: {first_line(error)}")
    return Outcome(case.name, operator(case), "passed")


def as_array(value: Any) -> Any:
    """Some cases hold tensors as protobufs, because NumPy lacks their type."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def compute(model: onnx.ModelProto, arrays: dict[str, Any], folder: Path) -> list[Any]:
    """The stages that a build runs, then the compiled library on the inputs."""
    from pydoit import passes
    from pydoit.runtime import Model
    from pydoit.stages import compile as compile_stage
    from pydoit.stages import import_, optimize, tune, weights

    out = {name: folder / name for name in ("fetch", "import", "optimize", "tune", "compile", "weights")}
    for path in out.values():
        path.mkdir()
    (out["fetch"] / "model").mkdir()
    onnx.save(model, out["fetch"] / "model" / "model.onnx")
    from pydoit.importers.onnx_inputs import identifier

    named = {identifier(name): np.asarray(array) for name, array in arrays.items()}
    inputs = {name: {"shape": array.shape, "dtype": str(array.dtype)} for name, array in named.items()}
    target = {"kind": "cpu", "arch": ARCH, "threads": 1}
    import_.run(import_.Spec.model_validate({"source": "onnx", "inputs": inputs}), out, out["import"])
    order = {"passes": passes.PRESETS["O2"], "target": target}
    optimize.run(optimize.Spec.model_validate(order), out, out["optimize"])
    tune.run(tune.Spec.model_validate({"target": target}), out, out["tune"])
    compile_stage.run(compile_stage.Spec.model_validate({"target": target}), out, out["compile"])
    weights.run(weights.Spec.model_validate({"target": target}), out, out["weights"])
    spec = json.loads((out["optimize"] / "spec.json").read_bytes())
    library, tensors = out["compile"] / "lib.so", out["weights"] / "model.safetensors"
    machine = Model(library, tensors, spec["inputs"], spec["outputs"], spec["weights"], threads=1)
    return list(machine(**named).values())


def compare(name: str, actual: Any, wanted: Any, case: Any) -> None:
    """As onnx's own runner compares: element type, shape, and values within the case's tolerances."""
    assert str(actual.dtype) == str(wanted.dtype), f"{name}: dtype is {actual.dtype}, not {wanted.dtype}"
    assert actual.shape == wanted.shape, f"{name}: shape is {list(actual.shape)}, not {list(wanted.shape)}"
    case_dtype = actual.dtype
    if actual.dtype.kind == "V" or actual.dtype.name.startswith(("bfloat", "float8")):
        actual, wanted = actual.astype(np.float32), wanted.astype(np.float32)
    rtol = max(case.rtol, 2**-6) if str(case_dtype) == "bfloat16" else case.rtol  # as onnx's runner: two units
    if not np.allclose(actual, wanted, rtol=rtol, atol=case.atol, equal_nan=True):
        wrong = ~np.isclose(actual, wanted, rtol=rtol, atol=case.atol, equal_nan=True)
        where = np.argwhere(wrong)[0].tolist()
        shown = f"{actual[tuple(where)]!s}, not {wanted[tuple(where)]!s}"
        raise AssertionError(f"{name}: wrong values: {int(wrong.sum())} of {wrong.size}; at {where} {shown}")


def first_line(error: BaseException) -> str:
    """The line of an error's text that says most: the first, without machine-dependent paths."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def run_all(chosen: list[Any], bodies: Bodies, jobs: int, show: Any = None) -> list[Outcome]:
    """Each case in a forked process of its own, so that a crash or a hang costs one case."""
    context = multiprocessing.get_context("fork")
    waiting, running, outcomes = list(chosen)[::-1], {}, {}
    while waiting or running:
        while waiting and len(running) < jobs:
            case = waiting.pop()
            receiving, sending = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(case, bodies, sending), daemon=True)
            process.start()
            sending.close()
            running[receiving] = (case, process, time.monotonic() + SECONDS)
        for connection in multiprocessing.connection.wait(list(running), timeout=0.5):
            case, process, _ = running.pop(connection)
            outcomes[case.name] = _received(connection, process, case)
            show and show(outcomes[case.name])
        for connection, (case, process, deadline) in list(running.items()):
            if time.monotonic() > deadline:
                del running[connection]
                process.kill()
                process.join()
                outcomes[case.name] = Outcome(case.name, operator(case), "failed", f"took more than {SECONDS:.0f} s")
                show and show(outcomes[case.name])
    return [outcomes[case.name] for case in chosen]


def _work(case: Any, bodies: Bodies, sending: Any) -> None:
    import os

    null = os.open(os.devnull, os.O_WRONLY)  # TVM prints what it converts
    os.dup2(null, 1)
    os.dup2(null, 2)
    sending.send(check(case, bodies))
    sending.close()


def _received(connection: Any, process: Any, case: Any) -> Outcome:
    try:
        outcome = connection.recv()
    except EOFError:
        process.join()
        outcome = Outcome(case.name, operator(case), "failed", f"CRASH: the process ended with {process.exitcode}")
    connection.close()
    process.join()
    return outcome


def run(options: argparse.Namespace) -> str | None:
    """Run the cases that match; print totals; return the document's part unless filtered."""
    preload()
    everything = cases()
    bodies = operators_of_bodies(everything)
    chosen = [case for case in everything if selected(case.name, options.filter)]
    if options.sample:
        chosen = sample(chosen)
    excluded = {case.name: reason for case in chosen if (reason := exclusion(case))}
    outcomes = [Outcome(case.name, operator(case), "excluded", excluded[case.name]) for case in chosen if case.name in excluded]

    def show(outcome: Outcome) -> None:
        if outcome.status == "failed":
            print(f"{outcome.name}: {outcome.reason}", flush=True)

    outcomes += run_all([case for case in chosen if case.name not in excluded], bodies, options.jobs, show)
    outcomes.sort(key=lambda outcome: outcome.name)
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n", encoding="utf-8")
    print(totals(outcomes))
    return document(outcomes) if options.filter == "*" and not options.sample else None


def selected(name: str, patterns: str) -> bool:
    """Whether a name matches one of the patterns, and none that begins with `!`."""
    parts = patterns.split(",")
    wanted = [part for part in parts if not part.startswith("!")] or ["*"]
    unwanted = [part[1:] for part in parts if part.startswith("!")]
    return any(fnmatch.fnmatch(name, p) for p in wanted) and not any(fnmatch.fnmatch(name, p) for p in unwanted)


def sample(chosen: Sequence[Any]) -> list[Any]:
    """The first case of each operator that is not left out."""
    first: dict[str, Any] = {}
    for case in chosen:
        if exclusion(case) is None:
            first.setdefault(operator(case), case)
    return list(first.values())


def preload() -> None:
    """Import what every case needs before the processes are forked."""
    import importlib

    names = ("tvm_compat", "importers.onnx", "runtime", "kernels.apply", "kernels.lowering", "kernels.tasks", "lifting")
    stages = ("compile", "import_", "optimize", "tune", "weights")
    for name in (*(f"pydoit.{n}" for n in names), *(f"pydoit.stages.{n}" for n in stages), "tvm.relax.frontend.onnx"):
        importlib.import_module(name)
    from pydoit.importers import onnx_ops
    from pydoit.passes import PASSES

    onnx_ops.converters()
    for info in PASSES.values():
        importlib.import_module(info.factory.partition(":")[0])


def totals(outcomes: list[Outcome]) -> str:
    """Counts and rates, function bodies apart."""
    lines = ["| cases | all | left out | run | passed | failed | rate |", "|---|---|---|---|---|---|---|"]
    for title, part in (("operators", False), ("function bodies", True)):
        group = [outcome for outcome in outcomes if outcome.expanded is part]
        count = {s: sum(o.status == s for o in group) for s in ("passed", "failed", "excluded")}
        ran = count["passed"] + count["failed"]
        rate = f"{100 * count['passed'] / ran:.1f}%" if ran else "-"
        row = (title, len(group), count["excluded"], ran, count["passed"], count["failed"], rate)
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines)


def document(outcomes: list[Outcome]) -> str:
    """The ONNX part of docs/coverage.md."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.operator].append(outcome)
    rows = ["| operator | cases | left out | passed | failed |", "|---|---|---|---|---|"]
    for name, group in sorted(groups.items(), key=lambda item: item[0].lower()):
        count = {s: sum(o.status == s for o in group) for s in ("excluded", "passed", "failed")}
        rows.append(f"| {name} | {len(group)} | {count['excluded'] or ''} | {count['passed']} | {count['failed'] or ''} |")
    failed = [o for o in outcomes if o.status == "failed"]
    left_out: dict[str, int] = defaultdict(int)
    for outcome in outcomes:
        if outcome.status == "excluded":
            left_out[outcome.reason] += 1
    return "\n".join(
        [
            "## ONNX: the node tests of the onnx package",
            "",
            f"onnx {onnx.__version__}, {len(outcomes)} cases, each through import, optimize (O2), compile ({ARCH}) and the",
            "runtime, compared with the case's expected outputs at the case's own tolerances. Operands that decide on shapes",
            "(Reshape's shape, Pad's pads) are bound to the case's values, as a recipe binds them; all else is an input.",
            "",
            totals(outcomes),
            "",
            "Left out: " + ", ".join(f"{reason} ({count})" for reason, count in sorted(left_out.items())) + ".",
            "",
            "### Failed",
            "",
            *(["| case | reason |", "|---|---|"] if failed else ["None."]),
            *(f"| {o.name} | {_cell(o.reason)} |" for o in failed),
            "",
            "### Operators",
            "",
            *rows,
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _all_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    nodes = list(graph.node)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                nodes += _all_nodes(attribute.g)
    return nodes


def _is_sequence(node: onnx.NodeProto) -> bool:
    return "Sequence" in node.op_type or node.op_type.startswith("Optional")


def _names_sub_byte(node: onnx.NodeProto) -> bool:
    codes = {onnx.TensorProto.DataType.Value(name) for name in SUB_BYTE}
    return any(a.name in ("to", "output_dtype", "dtype") and a.i in codes for a in node.attribute)
