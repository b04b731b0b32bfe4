"""Accuracy: each metric beside its bound, and the errors of outputs and, where they were measured, of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydoit.report.blocks import Block, Cell, Column, Facts, Figure, Reason, Section, Table
from pydoit.report.numbers import NONE, percent, shortened, significant, trimmed
from pydoit.report.plots import errors
from pydoit.report.reading import number, part, parts
from pydoit.report.status import status_text

MEASURED = {"divergence": "divergence", "perplexity": "perplexity_change", "max_abs": "max_abs", "max_rel": "max_rel",
            "cosine": "cosine", "greedy": "greedy", "top1": "top1"}  # fmt: skip
"""Bound -> the measurement that it holds for."""
AT_LEAST = frozenset({"cosine", "greedy", "top1"})
NO_LAYERS = "By layer: verify compares outputs only; `doit bisect` finds the kernel where two builds begin to differ."


def accuracy(report: Mapping[str, Any]) -> Section:
    """Metrics, outputs, layers."""
    verify = part(report, "verify")
    if not verify:
        return Section("accuracy", "Accuracy", [Reason(f"Nothing was compared: {status_text(report, 'verify')}.")])
    columns = [Column("metric"), Column("measured", is_number=True), Column("bound", is_number=True), Column("verdict"),
               Column("of the bound used", is_number=True)]  # fmt: skip
    caption = f"Differences from {verify.get('reference')}, the worst over all samples"
    blocks: list[Block] = [Facts(_facts(verify)), Table(caption, columns, list(_metrics(verify)))]
    return Section("accuracy", "Accuracy", [*blocks, *_outputs(verify), *_layers(verify)])


def _facts(verify: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = {"reference": "reference", "samples": "samples", "positions": "positions", "prompts": "prompts", "seed": "seed",
             "distinct_outputs": "distinct outputs", "not_finite": "values not finite", "perplexity": "perplexity",
             "reference_perplexity": "perplexity of the reference"}  # fmt: skip
    return [(label, significant(verify[name], 5)) for name, label in names.items() if verify.get(name) is not None]


def _metrics(verify: Mapping[str, Any]) -> Iterator[list[Cell]]:
    bounds = part(verify, "tolerance")
    for bound_name, name in MEASURED.items():
        value, bound = verify.get(name), number(bounds.get(bound_name))
        if value is None:
            continue
        digits = 8 if name in AT_LEAST else 3
        shown = Cell(significant(value, digits))
        if bound is None:
            yield [Cell(name), shown, Cell(NONE), Cell("not checked", "quiet"), Cell(NONE)]
            continue
        found = number(value)
        keeps = found is not None and (found >= bound if name in AT_LEAST else found <= bound)
        limit = f"{'≥' if name in AT_LEAST else '≤'} {trimmed(significant(bound, digits))}"
        verdict = Cell("✓ kept" if keeps else "✗ missed", "good" if keeps else "bad")
        yield [Cell(name), shown, Cell(limit), verdict, _used(name, found, bound)]


def _used(name: str, value: float | None, bound: float) -> Cell:
    if value is None:
        return Cell(NONE)
    part_used, whole = (1 - value, 1 - bound) if name in AT_LEAST else (value, bound)
    if whole <= 0:
        return Cell(NONE)
    used = max(part_used / whole, 0.0)
    return Cell(percent(used), share=min(used, 1.0))


def _outputs(verify: Mapping[str, Any]) -> list[Block]:
    outputs = part(verify, "outputs")
    if not outputs:
        return []
    named = [{"name": name, **part(outputs, name)} for name in outputs]
    return _errors("Errors by output", named, verify)


def _layers(verify: Mapping[str, Any]) -> list[Block]:
    layers = parts(verify.get("layers"))
    return _errors("Errors by layer", layers, verify) if layers else [Reason(NO_LAYERS)]


def _errors(title: str, listed: Sequence[Mapping[str, Any]], verify: Mapping[str, Any]) -> list[Block]:
    known = [
        errors.Error(str(item.get("name")), value) for item in listed if (value := number(item.get("max_abs"))) is not None
    ]
    drawn = errors.draw(title, known, number(part(verify, "tolerance").get("max_abs")), "max_abs")
    plot: list[Block] = (
        [Figure(title, drawn, "Largest absolute difference of each, in their order.")] if drawn is not None else []
    )
    columns = [Column("name"), *(Column(name, is_number=True) for name in ("no.", "max_abs", "max_rel", "mean_abs", "cosine"))]
    rows = []
    for place, item in enumerate(listed, start=1):
        values = [Cell(significant(item.get(key), 8 if key == "cosine" else 3), value=number(item.get(key)))
                  for key in ("max_abs", "max_rel", "mean_abs", "cosine")]  # fmt: skip
        rows.append([Cell(shortened(item.get("name")), "code"), Cell(str(place), value=place), *values])
    return [*plot, Table(title, columns, rows, is_long=len(rows) > 30)]
