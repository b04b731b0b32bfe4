"""The journal as a table and as a plot of one figure over time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape

from pydoit.errors import UserError
from pydoit.regression.journal import Experiment
from pydoit.text_table import text_table

WIDTH, HEIGHT, MARGIN = 800, 300, 60
COLOURS = {"worse": "#b3261e", "failed": "#b3261e", "better": "#1a7f37", "inconclusive": "#9a6700"}


def table(rows: Sequence[Experiment]) -> str:
    """For people, the newest last."""
    if not rows:
        return "no experiments yet\n"
    columns = ("time", "kind", "recipe", "what", "figures", "verdict")
    lines = []
    for row in rows:
        figures = ", ".join(f"{name} {value:.4g}" for name, value in row.figures.items() if isinstance(value, int | float))
        verdict = f"{row.verdict}: {row.reason}" if row.reason else row.verdict
        lines.append((_when(row), row.kind, row.recipe, row.changed, figures, verdict))
    return text_table(columns, lines)


def svg(rows: Sequence[Experiment], figure: str) -> str:
    """The figure of each row that has it, in their order, with a title for each point. Raises UserError without any."""
    points = [(row, float(row.figures[figure])) for row in rows if isinstance(row.figures.get(figure), int | float)]
    if not points:
        known = sorted({name for row in rows for name in row.figures})
        raise UserError(f"no experiment has the figure {figure!r}; known: {', '.join(known) or 'none yet'}")
    top = max(value for _, value in points) or 1.0
    step = (WIDTH - 2 * MARGIN) / max(len(points) - 1, 1)
    places = [
        (MARGIN + index * step, HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * value / top)
        for index, (_, value) in enumerate(points)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    marks = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS.get(row.verdict, "#0969da")}">'
        f"<title>{escape(f'{_when(row)} {row.recipe}, {row.changed}: {value:.4g} {row.verdict}')}</title></circle>"
        for (x, y), (row, value) in zip(places, points, strict=True)
    ]
    base = HEIGHT - MARGIN
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"',
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(figure)} over {len(points)} experiments</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<path d="M{MARGIN} {MARGIN}V{base}H{WIDTH - MARGIN}" fill="none" stroke="#57606a"/>',
        f'<text x="{MARGIN - 8}" y="{MARGIN + 4}" text-anchor="end">{top:.4g}</text>',
        f'<text x="{MARGIN - 8}" y="{base + 4}" text-anchor="end">0</text>',
        f'<text x="{MARGIN}" y="{MARGIN - 20}">{escape(figure)}</text>',
        f'<text x="{MARGIN}" y="{base + 20}">{_when(points[0][0])}</text>',
        f'<text x="{WIDTH - MARGIN}" y="{base + 20}" text-anchor="end">{_when(points[-1][0])}</text>',
        f'<polyline points="{line}" fill="none" stroke="#0969da" stroke-width="1.5"/>',
        *marks,
        "</svg>",
    ]) + "\n"  # fmt: skip


def _when(row: Experiment) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(row.time))
