"""What differs in two ELF files: sections, the symbols in them, and device code that is embedded in a library."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydoit.reproduce.difference import counted

MAGIC = b"\x7fELF"
NAMED = frozenset({"STT_FUNC", "STT_OBJECT", "STT_GNU_IFUNC"})


@dataclass(frozen=True)
class Symbol:
    """A function or object, with its bytes."""

    kind: str
    section: str
    data: bytes


def elf_differences(one: bytes, two: bytes, place: str = "") -> Iterator[str]:
    """A line for each section that differs, with the functions and objects in it that do."""
    before, after = _sections(one), _sections(two)
    symbols = _symbols(one, before), _symbols(two, after)
    for name in sorted({*symbols[0]} ^ {*symbols[1]}):
        symbol = symbols[0].get(name) or symbols[1][name]
        yield f"{place}section {symbol.section}: {symbol.kind} {name}: only one of the builds has it"
    for name in sorted({*before, *after}):
        if before.get(name) == after.get(name):
            continue
        if name not in before or name not in after:
            yield f"{place}section {name}: only one of the builds has it"
            continue
        yield f"{place}section {name}: {counted(before[name], after[name])}"
        yield from _in_section(name, *symbols, place)
        yield from _embedded(name, before[name], after[name], place)


def _in_section(section: str, one: Mapping[str, Symbol], two: Mapping[str, Symbol], place: str) -> Iterator[str]:
    for name in sorted({*one} & {*two}):
        before, after = one[name], two[name]
        if before.data != after.data and section == before.section:
            yield f"{place}section {section}: {before.kind} {name}: {counted(before.data, after.data)}"


def _embedded(section: str, one: bytes, two: bytes, place: str) -> Iterator[str]:
    """Differences of ELF files inside a section: a GPU's machine code."""
    starts = zip(_starts(one), _starts(two), strict=False)
    for index, (first, second) in enumerate(starts):
        before, after = one[first:], two[second:]
        yield from elf_differences(before, after, f"{place}section {section}: device code {index}: ")


def _starts(data: bytes) -> list[int]:
    found, at = [], data.find(MAGIC)
    while at >= 0:
        found.append(at)
        at = data.find(MAGIC, at + len(MAGIC))
    return found


def _open(data: bytes) -> Any:
    from elftools.elf.elffile import ELFFile

    return ELFFile(io.BytesIO(data))


def _sections(data: bytes) -> dict[str, bytes]:
    """Name -> bytes; a name that occurs again gets its number."""
    found: dict[str, bytes] = {}
    for section in _open(data).iter_sections():
        if section["sh_type"] in ("SHT_NULL", "SHT_NOBITS"):
            continue
        name = section.name
        while name in found:
            name += "+"
        found[name] = section.data()
    return found


def _symbols(data: bytes, sections: Mapping[str, bytes]) -> dict[str, Symbol]:
    file = _open(data)
    table = file.get_section_by_name(".symtab") or file.get_section_by_name(".dynsym")
    found: dict[str, Symbol] = {}
    for symbol in table.iter_symbols() if table is not None else ():
        index = symbol["st_shndx"]
        if symbol["st_info"]["type"] not in NAMED or not isinstance(index, int):
            continue
        section = file.get_section(index)
        start = symbol["st_value"] - section["sh_addr"]
        content = sections.get(section.name, b"")[start : start + symbol["st_size"]]
        kind = "function" if symbol["st_info"]["type"] != "STT_OBJECT" else "object"
        found[symbol.name] = Symbol(kind, section.name, content)
    return found
