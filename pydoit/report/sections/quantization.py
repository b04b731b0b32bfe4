"""Quantization: the scheme, what it saves, what it costs in accuracy, and each layer where layers were measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydoit.report.blocks import Block, Cell, Column, Facts, Reason, Section, Table
from pydoit.report.numbers import NONE, percent, relative, shortened, signed, significant, size
from pydoit.report.reading import number, part, parts

FLOAT_BYTES = 4
NO_LAYERS = "No figures by layer: weights are rounded to the nearest in packing, and only the whole model is compared."


def quantization(report: Mapping[str, Any]) -> Section:
    """Facts, and a row a layer."""
    scheme = part(report, "recipe_values", "quantization")
    layers = parts(part(report, "measurements", "quantization").get("layers"))
    if not scheme and not layers:
        unknown = not part(report, "recipe_values")
        reason = "The resolved recipe is not in this report." if unknown else "The recipe quantizes nothing."
        return Section("quantization", "Quantization", [Reason(reason)])
    blocks: list[Block] = [Facts([*_scheme(scheme), *_effect(report)])]
    if not layers:
        return Section("quantization", "Quantization", [*blocks, Reason(NO_LAYERS)])
    names = ("before", "after", "error", "error if rounded to the nearest", "SQNR", "speed-up")
    numbers = [Column(name, is_number=True) for name in names]
    columns = [Column("layer"), Column("scheme"), *numbers, Column("kept as it is because")]
    table = Table(
        "Layers, their sizes, errors and speeds", columns, [_row(layer) for layer in layers], is_long=len(layers) > 30
    )
    return Section("quantization", "Quantization", [*blocks, table])


def _scheme(scheme: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            for name, value in scheme.items()]  # fmt: skip


def _effect(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    shown = []
    weights = number(part(report, "measurements", "weights").get("bytes"))
    parameters = number(part(report, "measurements", "import").get("parameters"))
    if weights is not None and parameters:
        plain = parameters * FLOAT_BYTES
        shown.append(("weights", f"{size(weights)}, {percent(weights / plain)} of float32 ({size(plain)})"))
    verify = part(report, "verify")
    change = relative(verify.get("perplexity"), verify.get("reference_perplexity"))
    if change is not None:
        shown.append(("perplexity", f"{significant(verify['perplexity'], 5)} ({signed(change)} to float32)"))
    if number(verify.get("top1")) is not None:
        shown.append(("same likeliest token", percent(verify["top1"])))
    return shown


def _row(layer: Mapping[str, Any]) -> list[Cell]:
    speedup, noise = number(layer.get("speedup")), number(layer.get("sqnr_db"))
    return [
        Cell(shortened(layer.get("name")), "code"), Cell(str(layer.get("scheme") or NONE)),
        Cell(size(layer.get("bytes_before")), value=number(layer.get("bytes_before"))),
        Cell(size(layer.get("bytes")), value=number(layer.get("bytes"))),
        Cell(significant(layer.get("error")), value=number(layer.get("error"))),
        Cell(significant(layer.get("nearest_error")), value=number(layer.get("nearest_error"))),
        Cell(f"{significant(noise)} dB" if noise is not None else NONE, value=noise),
        Cell(f"{significant(speedup)}×" if speedup is not None else NONE, value=speedup),
        Cell(shortened(layer.get("reason") or "", 200), "quiet"),
    ]  # fmt: skip
