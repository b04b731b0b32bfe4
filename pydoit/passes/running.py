"""Applies an order of passes to a module: what each changed, what the module costs after it, whether it is still sound."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydoit.errors import ModelBuildError, StageError, UserError
from pydoit.passes import Setting, check_order, check_use, declared, make_pass, repeat_of, split_use
from pydoit.passes.info import Entry
from pydoit.worker import progress

Watch = Callable[[int, Entry, Any, Any], None]
"""Called after a pass that changed something: its place, the pass, the module before it and after it."""


def run_passes(
    order: Sequence[Entry],
    module: Any,
    *,
    entry: str = "main",
    extents: Mapping[str, int] | None = None,
    instrument: bool = False,
    watch: Watch | None = None,
) -> tuple[Any, list[dict[str, Any]], list[float]]:
    """Apply the passes; return the module, a log of what each did, and the seconds of each.

    The log has {name, options, changed, iterations, converged, returns_to, figures}. `converged` is false for a repeated
    pass that still changed something in its last iteration; `returns_to` is the place of the pass (-1: none) after which
    the module already was as it is again. `figures` (`pydoit.figures`) are those of `entry` after the pass, None unless
    `instrument` asks for them; `extents` are the upper bounds of symbolic extents. Raises StageError for a pass that fails
    or leaves a module that is not well-formed. Needs the target as the current one.
    """
    from pydoit.figures import Meter
    from pydoit.tvm_compat import structural_hash

    meter = Meter(dict(extents or {}), entry) if instrument else None
    sound = not malformation(module)
    digest = structural_hash(module)
    seen = {digest: -1}
    figures = meter.figures(module).to_json() if meter else None
    log: list[dict[str, Any]] = []
    seconds: list[float] = []
    for number, use in enumerate(order):
        check_use(use)
        name, options = split_use(use)
        progress(f"pass {number + 1}/{len(order)}: {name}")
        started = time.perf_counter()
        before, before_digest = module, digest
        for iteration in range(1, repeat_of(use) + 1):
            iterations, last = iteration, digest
            module = apply_pass(use, module)
            digest = structural_hash(module)
            if digest == last:
                break
        settled = repeat_of(use) == 1 or digest == last
        seconds.append(round(time.perf_counter() - started, 4))
        changed = digest != before_digest
        if changed:
            reason = malformation(module) if sound else ""
            if reason:
                raise StageError(f'pass "{name}" left a module that is not well-formed: {reason}; remove it')
            figures = meter.figures(module).to_json() if meter else None
            if watch is not None:
                watch(number, use, before, module)
        log.append({
            "name": name, "options": options, "changed": changed, "iterations": iterations, "converged": settled,
            "returns_to": seen.get(digest) if changed else None, "figures": figures,
        })  # fmt: skip
        seen.setdefault(digest, number)
    return module, log, seconds


def check_own(order: Sequence[Entry], setting: Setting) -> None:
    """Check an order with what the user's own passes declare of themselves; UserError names the first fault and a mend."""
    known = declared(order)
    faults = check_order(order, setting, known) if known else []
    if faults:
        raise UserError(f"passes.order[{faults[0].index}]: {faults[0].text}; move or remove it")


def apply_pass(use: Entry, module: Any) -> Any:
    """The module after one pass; the given one stays as it is. Raises StageError for what the pass raises."""
    apply = make_pass(use)
    # Passes may update the module in place; the caller compares it with the result.
    copy = type(module)(dict(module.functions.items()), attrs=module.attrs)
    try:
        return apply(copy)
    except ModelBuildError:
        raise
    except Exception as error:  # a pass may raise anything: it is TVM's code or the user's
        raise StageError(f'pass "{split_use(use)[0]}" failed: {first_line(error)}; move or remove it') from error


def malformation(module: Any) -> str:
    """Why a module is not well-formed; empty when it is."""
    from pydoit.tvm_compat import relax

    if relax.analysis.check_well_formed(module):
        return ""
    try:
        relax.analysis.well_formed(module)
    except Exception as error:  # noqa: BLE001 - TVM's own error says where
        return first_line(error)
    return "no reason given"


def first_line(error: BaseException) -> str:
    """The first line of an error's text that says something, else its type."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
