"""The registry as documents: docs/passes.md, and the graph of which pass needs which, as DOT and SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from pydoit.passes.info import PROPERTIES, Entry, PassInfo
from pydoit.passes.order import Setting, State, name_of, split_use
from pydoit.passes.presets import LANGUAGE_PRESETS, PRESETS
from pydoit.passes.registry import PASSES, all_passes

Edge = tuple[str, str, str]
"""A pass, one that comes later where both are there, and why."""

_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y = 230, 26, 90, 14


def markdown() -> str:
    """docs/passes.md."""
    parts = [_HEAD, "## Passes\n"]
    parts += [_pass_text(name, PASSES[name]) for name in sorted(PASSES)]
    parts.append("## Presets\n")
    for name, order in PRESETS.items():
        parts.append(f"### {name}\n\n{_order_table(order, Setting())}")
    parts.append("## Presets of language models\n\n" + _LANGUAGE_HEAD)
    for target, presets in LANGUAGE_PRESETS.items():
        for names, same in _same(presets):
            parts.append(f"### {', '.join(names)} on {target}\n\n{_order_table(same, Setting(target, language=True))}")
    return "\n".join(parts)


_HEAD = """# Passes

Generated from the registry by `python -m pydoit.schema`. A recipe orders passes under `[passes]`, by a preset or by an
order of its own; `doit passes` lists them, `doit passes check RECIPE` checks an order, and every build checks it before
anything runs. [passes.svg](passes.svg) draws which pass comes before which.

The check follows the state of the module. An imported module has Relax operators, weights that `main` computes with,
no groups, and dataflow blocks; each pass says what it needs of that state and what it leaves:

""" + "".join(f"- `{name}`: {item.summary}\n" for name, item in PROPERTIES.items())
_LANGUAGE_HEAD = """The weights of a language model are laid out before its passes, and its matrix products, attention
and norms are kernels already; passes arrange what lies between.
"""
_STYLE = (
    "<style>rect{fill:#eef3fb;stroke:#3b6ea8}path{fill:none;stroke:#8a94a3}text{fill:#1b2733}"
    "@media(prefers-color-scheme:dark){rect{fill:#1d2a3a;stroke:#7fb0e6}path{stroke:#7c8794}text{fill:#e6edf5}}</style>"
)


def pass_facts(info: PassInfo) -> list[tuple[str, str]]:
    """What is declared of a pass, as labelled lines."""
    facts = [
        ("needs", ", ".join(item for item in PROPERTIES if item in info.requires)),
        ("leaves", ", ".join(item for item in PROPERTIES if item in info.provides)),
        ("ends", ", ".join(item for item in PROPERTIES if item in info.invalidates)),
        *(("before", f"{other}: {reason}") for other, reason in info.before.items()),
        *(("after", f"{other}: {reason}") for other, reason in info.after.items()),
        ("targets", ", ".join(info.targets)),
        ("options", ", ".join(f"{option} = {default!r}" for option, default in info.options.items())),
        ("repeated", "" if info.idempotent else "a second run right after the first may change more"),
        ("results", "" if info.exact else "are approximations"),
        ("from", info.factory + (f" ({info.package})" if info.package else "")),
    ]
    return [(label, text) for label, text in facts if text]


def edges() -> list[Edge]:
    """All pairs of which the first comes earlier where an order has both."""
    found: list[Edge] = []
    passes = all_passes()
    for name, info in passes.items():
        found += [(name, other, reason) for other, reason in info.before.items()]
        found += [(other, name, reason) for other, reason in info.after.items()]
        for other, maker in passes.items():
            gained = (info.requires & maker.provides) - {"dataflow", "separate"}
            lost = (maker.requires & info.invalidates) - {"patterns"}
            if gained:
                found.append((other, name, f"needs {', '.join(sorted(gained))}"))
            elif lost and not maker.invalidates & lost and "operators" in lost:
                found.append((other, name, f"ends {', '.join(sorted(lost))}"))
    return list(dict.fromkeys(found))


def dot() -> str:
    """The graph for Graphviz."""
    lines = ["digraph passes {", "  rankdir = LR;", '  node [shape = box, fontname = "sans-serif"];']
    lines += [f'  "{first}" -> "{second}" [tooltip = "{escape(reason)}"];' for first, second, reason in _reduced(edges())]
    lines += [f'  "{name}";' for name in all_passes()]
    return "\n".join([*lines, "}", ""])


def svg() -> str:
    """The graph as a picture: columns by how many passes must come before."""
    links = _reduced(edges())
    columns = _columns(links)
    width = max(columns.values()) + 1
    rows: dict[int, list[str]] = {column: [] for column in range(width)}
    for name in sorted(columns):
        rows[columns[name]].append(name)
    places = {
        name: (20 + column * (_BOX_WIDTH + _GAP_X), 20 + row * (_BOX_HEIGHT + _GAP_Y))
        for column, names in rows.items()
        for row, name in enumerate(names)
    }
    size = (40 + width * (_BOX_WIDTH + _GAP_X) - _GAP_X, 40 + max(map(len, rows.values())) * (_BOX_HEIGHT + _GAP_Y))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" font-family="sans-serif" font-size="13">',
        _STYLE,
        *(_curve(places[first], places[second], reason) for first, second, reason in links),
        *(_box(name, places[name]) for name in sorted(places)),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _curve(first: tuple[int, int], second: tuple[int, int], reason: str) -> str:
    x1, y1 = first[0] + _BOX_WIDTH, first[1] + _BOX_HEIGHT // 2
    x2, y2 = second[0], second[1] + _BOX_HEIGHT // 2
    bend = max(40, (x2 - x1) // 2)
    return f'<path d="M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"><title>{escape(reason)}</title></path>'


def _box(name: str, place: tuple[int, int]) -> str:
    x, y = place
    summary = escape(all_passes()[name].summary)
    return (
        f'<g><title>{summary}</title><rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="4"/>'
        f'<text x="{x + 10}" y="{y + 18}">{escape(name)}</text></g>'
    )


def _columns(links: Sequence[Edge]) -> dict[str, int]:
    columns = dict.fromkeys(all_passes(), 0)
    for _ in columns:
        for first, second, _reason in links:
            columns[second] = max(columns[second], columns[first] + 1)
    return columns


def _reduced(links: Sequence[Edge]) -> list[Edge]:
    """Without edges that a longer way implies; edges of a cycle (of passes that may alternate) are left out."""
    forward: dict[str, set[str]] = {}
    kept: list[Edge] = []
    for first, second, reason in links:
        if not _reaches(forward, second, first) and first != second:
            forward.setdefault(first, set()).add(second)
            kept.append((first, second, reason))
    return [
        (first, second, reason)
        for first, second, reason in kept
        if not any(other != second and _reaches(forward, other, second) for other in forward[first])
    ]


def _reaches(forward: Mapping[str, set[str]], start: str, end: str) -> bool:
    waiting, seen = [start], set[str]()
    while waiting:
        current = waiting.pop()
        if current == end:
            return True
        if current not in seen:
            seen.add(current)
            waiting.extend(forward.get(current, ()))
    return False


def _pass_text(name: str, info: PassInfo) -> str:
    facts = "".join(f"- {label}: {text}\n" for label, text in pass_facts(info))
    return f"### {name}\n\n{info.summary}\n\n{facts}"


def _order_table(order: Sequence[Entry], setting: Setting) -> str:
    """Each pass of an order with the reason why it stands where it does."""
    lines = ["| | pass | what it does | why here |", "| --- | --- | --- | --- |"]
    state = State(setting)
    for place, use in enumerate(order):
        name, options = split_use(use)
        info = PASSES[name]
        shown = f"`{name}`" + (f" {_options(options)}" if options else "")
        lines.append(f"| {place + 1} | {shown} | {info.summary} | {'; '.join(_reasons(order, place, state)) or 'anywhere'} |")
        state.apply(place, name, info)
    return "\n".join(lines) + "\n"


def _reasons(order: Sequence[Entry], place: int, state: State) -> Iterator[str]:
    """Why a pass stands after those before it and before those after it."""
    name = name_of(order[place])
    info = PASSES[name]
    for item in PROPERTIES:
        makers = [name_of(use) for use in order[:place] if item in PASSES[name_of(use)].provides]
        if item in info.requires and makers:
            yield f"after {makers[-1]}, which gives it {PROPERTIES[item].summary}"
    for other in map(name_of, order[:place]):
        if name in PASSES[other].before or other in info.after:
            reason = PASSES[other].before.get(name) or info.after.get(other)
            yield f"after {other}: {reason}"
    for other in map(name_of, order[place + 1 :]):
        lost = [item for item in PROPERTIES if item in info.requires & PASSES[other].invalidates & state.holds]
        reason = info.before.get(other)
        if reason:
            yield f"before {other}: {reason}"
        elif lost and other != name:
            yield f"before {other}, which {PROPERTIES[lost[0]].absent}"


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value!r}" for key, value in options.items())


def _same(presets: Mapping[str, Sequence[Entry]]) -> list[tuple[list[str], Sequence[Entry]]]:
    """Presets of one order under all their names."""
    found: dict[str, tuple[list[str], Sequence[Entry]]] = {}
    for name, order in presets.items():
        found.setdefault(str(order), ([], order))[0].append(name)
    return list(found.values())
