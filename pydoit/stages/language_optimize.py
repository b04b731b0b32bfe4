"""optimize, language models: the recipe's passes over prefill, decode and the rest; weights are laid out already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.keys import pretty
from pydoit.stages import optimize

TOOLS = optimize.TOOLS
READS = optimize.READS
Spec = optimize.Spec


def run(spec: optimize.Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write module.json, spec.json and passes.json."""
    from pydoit.passes import Setting
    from pydoit.passes.running import check_own, run_passes
    from pydoit.target import make_tvm_target
    from pydoit.tvm_compat import load_json, relax, save_json

    check_own(spec.passes, Setting(spec.target.kind, language=True))
    module = load_json((inputs["import"] / "module.json").read_text(encoding="utf-8"))
    with make_tvm_target(spec.target):
        module, log, seconds = run_passes(spec.passes, module, entry="decode", instrument=spec.instrument)
    (out / "module.json").write_text(save_json(module), encoding="utf-8")
    (out / "spec.json").write_bytes((inputs["import"] / "spec.json").read_bytes())
    (out / "passes.json").write_bytes(pretty({"schema": 1, "passes": log}))
    functions = sum(not isinstance(function, relax.Function) for _, function in module.functions_items())
    figures = {"passes": log} if spec.instrument else {}
    return {"pass_seconds": seconds, "functions": functions, **figures}
