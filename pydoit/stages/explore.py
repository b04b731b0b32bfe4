"""explore: what many orders of passes make of one module, without compiling it; no part of a build."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.errors import ModelBuildError
from pydoit.frozen import Frozen
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.worker import progress

TOOLS = ("apache-tvm", "apache-tvm-ffi")
READS = {"import": ("module.json", "spec.json")}

Order = tuple[str | dict[str, Any], ...]


class Spec(Frozen):
    """The orders."""

    orders: tuple[Order, ...]
    """Each legal."""
    target: ResolvedTarget
    """What the passes optimize for."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Return {"orders": [{ir, figures, seconds}, or {failure}]}; `ir` is the structural hash of what is compiled."""
    from pydoit import lifting
    from pydoit.figures import Meter
    from pydoit.passes.running import run_passes
    from pydoit.tvm_compat import load_json, relax, structural_hash

    described = json.loads((inputs["import"] / "spec.json").read_bytes())
    module = load_json((inputs["import"] / "module.json").read_text(encoding="utf-8"))
    module = lifting.mark_inputs(module, len(described["inputs"]))
    extents = {name: bound["max"] for name, bound in described["dims"].items()}
    found: list[dict[str, Any]] = []
    with make_tvm_target(spec.target):
        for number, order in enumerate(spec.orders):
            progress(f"order {number + 1} of {len(spec.orders)}")
            started = time.perf_counter()
            try:
                optimized, _, _ = run_passes(order, module)
                main, _ = lifting.split(optimized)
                # What compile does first, so that orders count as one when their libraries are.
                main = relax.transform.RewriteDataflowReshape()(relax.transform.LegalizeOps()(main))
            except ModelBuildError as error:
                found.append({"failure": str(error)})
                continue
            seconds = time.perf_counter() - started
            figures = Meter(extents).figures(main).to_json()
            found.append({"ir": f"{structural_hash(main) & (2**64 - 1):016x}", "figures": figures, "seconds": seconds})
    return {"orders": found}
