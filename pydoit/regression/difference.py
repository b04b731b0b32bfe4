"""What differs between two artifacts, section by section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydoit.lockfile.drift import mapping_changes
from pydoit.regression.facts import Facts

Digests = Mapping[str, str]
MOST = 40
"""Lines of one section for people; the JSON document has all."""


@dataclass(frozen=True)
class Section:
    """Lines under one heading."""

    title: str
    lines: tuple[str, ...]


def sections(first: Facts, second: Facts, kernels: tuple[Digests, Digests] | None = None) -> list[Section]:
    """Sections that differ. `kernels`: digests of the functions of both by what they compute, where they are known."""
    found = [
        Section("recipe", tuple(_changes("", first.recipe, second.recipe)) if first.recipe and second.recipe else ()),
        Section("toolchain", tuple(_changes("", first.toolchain, second.toolchain))),
        Section("interface", tuple(_changes("", first.interface, second.interface))),
        Section("kernels", tuple(_kernels(*kernels) if kernels else _functions(first.functions, second.functions))),
        Section("tuning records", tuple(_changes("", first.records, second.records)) if first.recipe and second.recipe else ()),
        Section("size", tuple(_figures(first.sizes, second.sizes, "bytes"))),
        Section("accuracy", tuple(_figures(first.accuracy, second.accuracy, ""))),
        Section("latency", tuple(_figures(first.latency, second.latency, "ms"))),
    ]
    return [section for section in found if section.lines]


def text(first: Facts, second: Facts, found: list[Section]) -> str:
    """For people."""
    lines = [f"{first.label} -> {second.label}"]
    for section in found:
        lines.append(f"{section.title}:")
        lines += [f"  {line}" for line in section.lines[:MOST]]
        if len(section.lines) > MOST:
            lines.append(f"  and {len(section.lines) - MOST} more (--format json has all)")
    if not found:
        lines.append("no difference")
    elif any(section.title == "latency" for section in found):
        lines.append(f"latencies were measured at different times; doit bench {first.label} {second.label} measures both")
    return "\n".join(lines) + "\n"


def _changes(label: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for change in mapping_changes(label, old, new):
        yield f"{change.what.lstrip('.')}: {change.old} -> {change.new}"


def _kernels(old: Digests, new: Digests) -> Iterator[str]:
    """Added, removed and changed kernels; one that only got another name is the same."""
    before, after = set(old.values()), set(new.values())
    gone = [name for name, digest in old.items() if digest not in after]
    come = [name for name, digest in new.items() if digest not in before]
    yield from (f"changed {name}" for name in gone if name in come)
    yield from (f"removed {name}" for name in gone if name not in come)
    yield from (f"added {name}" for name in come if name not in gone)
    if (gone or come) and len(old) != len(new):
        yield f"{len(old)} -> {len(new)} kernels"


def _functions(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[str]:
    """By names and sizes: addresses in the code of a function move with its neighbours."""
    yield from (f"changed {name}: {old[name]} -> {new[name]} bytes" for name in old if name in new and old[name] != new[name])
    yield from (f"removed {name}" for name in old if name not in new)
    yield from (f"added {name}" for name in new if name not in old)


def _figures(old: Mapping[str, float], new: Mapping[str, float], unit: str) -> Iterator[str]:
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        shown = " -> ".join("not measured" if value is None else _shown(value, unit) for value in (before, after))
        ratio = f" ({100 * (after / before - 1):+.1f} %)" if before and after else ""
        yield f"{name}: {shown}{ratio}"


def _shown(value: float, unit: str) -> str:
    return f"{value:,} bytes" if unit == "bytes" else f"{value:.6g} {unit}".rstrip()
