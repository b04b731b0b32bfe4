"""What a section is made of, as data; templates/page.html draws each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Paragraph:
    """A text."""

    text: str
    kind: str = "paragraph"


@dataclass(frozen=True)
class Reason:
    """Why something is not shown, in one line."""

    text: str
    kind: str = "reason"


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    pairs: Sequence[tuple[str, str]]
    kind: str = "facts"


@dataclass(frozen=True)
class Card:
    """One figure that matters."""

    label: str
    value: str
    notes: Sequence[str] = ()
    tone: str = ""
    """`good`, `bad`, or neither; the notes say it in words."""


@dataclass(frozen=True)
class Cards:
    """Figures side by side."""

    cards: Sequence[Card]
    kind: str = "cards"


@dataclass(frozen=True)
class Cell:
    """One place of a table."""

    text: str
    style: str = ""
    """`code`, `good`, `bad`, `quiet`."""
    value: float | None = None
    """What the column is sorted by."""
    share: float | None = None
    """Length of the bar behind it, 0 to 1."""


@dataclass(frozen=True)
class Column:
    """The head of a column."""

    title: str
    is_number: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under a caption; the first cell of a row names it."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    is_long: bool = False
    """Whether it can be sorted and filtered, and scrolls by itself."""
    kind: str = "table"


@dataclass(frozen=True)
class Figure:
    """A plot with what is to be seen in it."""

    title: str
    svg: Markup
    caption: str
    legend: Sequence[tuple[str, str]] = ()
    """Class of the sample mark and what it stands for."""
    key: Sequence[tuple[int, str]] = ()
    """Number in the plot and the name that it stands for."""
    kind: str = "figure"


@dataclass(frozen=True)
class Evidence:
    """One figure that a finding rests on."""

    name: str
    value: str
    threshold: str
    source: str


@dataclass(frozen=True)
class Finding:
    """Something that can be made better."""

    title: str
    label: str
    gain: str
    change: str
    assignments: Sequence[str]
    evidence: Sequence[Evidence]


@dataclass(frozen=True)
class Findings:
    """Findings, the one that is worth most first."""

    findings: Sequence[Finding]
    kind: str = "findings"


@dataclass(frozen=True)
class Folded:
    """Details that are opened when they are wanted."""

    title: str
    blocks: Sequence[Block]
    kind: str = "folded"


Block = Paragraph | Reason | Facts | Cards | Table | Figure | Findings | Folded


@dataclass(frozen=True)
class Section:
    """A part of the page under one heading."""

    name: str
    """Its address on the page."""
    title: str
    blocks: Sequence[Block]
