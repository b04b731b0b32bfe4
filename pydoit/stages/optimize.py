"""optimize: the recipe's passes turn imported Relax into fused TIR, and split off what depends on weights alone."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.errors import ModelBuildError, StageError
from pydoit.frozen import Frozen
from pydoit.keys import pretty
from pydoit.passes import make_pass, split_use
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.worker import progress

TOOLS = ("apache-tvm", "apache-tvm-ffi")
READS = {"import": ("module.json", "spec.json")}


class Spec(Frozen):
    """The order of the passes and what they optimize for."""

    passes: tuple[str | dict[str, Any], ...]
    """Passes in their order, a preset written out."""
    target: ResolvedTarget
    """Vector width and layouts follow from it."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write module.json, transform.json, spec.json and passes.json.

    Raises UserError for a pass that cannot be made and StageError for one that fails.
    """
    from pydoit import lifting
    from pydoit.tvm_compat import load_json, save_json

    described = json.loads((inputs["import"] / "spec.json").read_bytes())
    module = load_json((inputs["import"] / "module.json").read_text(encoding="utf-8"))
    module = lifting.mark_inputs(module, len(described["inputs"]))
    module, log, seconds = run_passes(spec, module)
    main, transform = lifting.split(module)
    described["weights"] = lifting.describe_weights(main, transform, described["params"])
    (out / "module.json").write_text(save_json(main), encoding="utf-8")
    (out / "transform.json").write_text(save_json(transform), encoding="utf-8")
    (out / "spec.json").write_bytes(pretty(described))
    (out / "passes.json").write_bytes(pretty({"schema": 1, "passes": log}))
    functions = len([name for name in main.get_global_vars() if name.name_hint != "main"])
    return {"pass_seconds": seconds, "functions": functions, "weights": len(described["weights"])}


def run_passes(spec: Spec, module: Any) -> tuple[Any, list[dict[str, Any]], list[float]]:
    """Apply the passes; return the module, the log {name, options, changed} of each, and their seconds."""
    from pydoit.tvm_compat import structural_equal

    log: list[dict[str, Any]] = []
    seconds: list[float] = []
    with make_tvm_target(spec.target):
        for number, use in enumerate(spec.passes, start=1):
            name, options = split_use(use)
            progress(f"pass {number}/{len(spec.passes)}: {name}")
            started = time.perf_counter()
            before, module = module, _apply(use, module)
            seconds.append(round(time.perf_counter() - started, 4))
            log.append({"name": name, "options": options, "changed": not structural_equal(before, module)})
    return module, log, seconds


def _apply(use: str | dict[str, Any], module: Any) -> Any:
    apply = make_pass(use)
    # Passes may update the module in place; the caller compares it with the result.
    copy = type(module)(dict(module.functions.items()), attrs=module.attrs)
    try:
        return apply(copy)
    except ModelBuildError:
        raise
    except Exception as error:  # a pass may raise anything: it is TVM's code or the user's
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise StageError(f'pass "{split_use(use)[0]}" failed: {reason}; move or remove it') from error
