"""optimize: the recipe's passes turn imported Relax into fused TIR, and split off what depends on weights alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydoit.frozen import Frozen
from pydoit.importers.spec import Input
from pydoit.keys import pretty
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.tools import ONEDNN

TOOLS = ("apache-tvm", "apache-tvm-ffi")
READS = {"import": ("module.json", "spec.json")}


class Spec(Frozen):
    """The order of the passes and what they optimize for."""

    passes: tuple[str | dict[str, Any], ...]
    """Passes in their order, a preset written out."""
    target: ResolvedTarget
    """Vector width and layouts follow from it."""
    instrument: bool = False
    """Write down what the module costs after each pass."""
    check: Literal["numerics"] | None = None
    """Run the module before and after each pass that changed it, and compare."""
    inputs: dict[str, Input] = {}
    """The model's inputs, where they are needed to run it."""
    onednn: bool = False
    """Whether operators may go to oneDNN; `auto` then follows the recipe's tuning records."""


def tools(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The tools that this order takes beside `TOOLS`."""
    return (ONEDNN,) if spec["onednn"] else ()


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write module.json, transform.json, spec.json and passes.json.

    Raises UserError for a pass that cannot be made and StageError for one that fails.
    """
    from pydoit import lifting
    from pydoit.kernels.onednn.choice import recorded
    from pydoit.passes import Setting
    from pydoit.passes.running import check_own, run_passes
    from pydoit.tvm_compat import load_json, save_json

    check_own(spec.passes, Setting(spec.target.kind))
    described = json.loads((inputs["import"] / "spec.json").read_bytes())
    module = load_json((inputs["import"] / "module.json").read_text(encoding="utf-8"))
    module = lifting.mark_inputs(module, len(described["inputs"]))
    watch = _numerics(spec, described, inputs) if spec.check == "numerics" else None
    extents = {name: bound["max"] for name, bound in described.get("dims", {}).items()}
    with make_tvm_target(spec.target), recorded(_decisions(spec, inputs)):
        module, log, seconds = run_passes(spec.passes, module, extents=extents, instrument=spec.instrument, watch=watch)
    main, transform = lifting.split(module)
    described["weights"] = lifting.describe_weights(main, transform, described["params"])
    (out / "module.json").write_text(save_json(main), encoding="utf-8")
    (out / "transform.json").write_text(save_json(transform), encoding="utf-8")
    (out / "spec.json").write_bytes(pretty(described))
    (out / "passes.json").write_bytes(pretty({"schema": 1, "passes": log}))
    functions = len([name for name in main.get_global_vars() if name.name_hint != "main"])
    return {"pass_seconds": seconds, "passes": log, "functions": functions, "weights": len(described["weights"])}


def _decisions(spec: Spec, inputs: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """What the recipe's records file, inputs["records"], says for this arch."""
    from pydoit.records import read_records

    return read_records(inputs["records"]).decisions(spec.target.arch) if "records" in inputs else {}


def _numerics(spec: Spec, described: Mapping[str, Any], inputs: Mapping[str, Path]) -> Any:
    """What compares the module before and after each pass on a seeded input of the recipe's."""
    from pydoit.execution import Executor, NumericsCheck
    from pydoit.runtime.aligned import map_weights

    params = map_weights(inputs["import"] / "params.safetensors")
    return NumericsCheck(Executor(described, spec.inputs, params, spec.target))
