"""report.html: one file with its style, plots and script inside, made of sections in a literal order."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from pydoit.report.blocks import Section
from pydoit.report.numbers import counted, shortened
from pydoit.report.reading import amount, cleaned, part
from pydoit.report.sections.accuracy import accuracy
from pydoit.report.sections.comparison import comparison
from pydoit.report.sections.environment import environment
from pydoit.report.sections.findings import findings
from pydoit.report.sections.kernels import kernels
from pydoit.report.sections.latency import latency
from pydoit.report.sections.memory import memory
from pydoit.report.sections.passes import passes
from pydoit.report.sections.quantization import quantization
from pydoit.report.sections.recipe import recipe
from pydoit.report.sections.stages import stages
from pydoit.report.sections.summary import summary
from pydoit.report.status import verdict

TEMPLATES = Path(__file__).with_name("templates")
SECTIONS: tuple[Callable[[Mapping[str, Any]], Section], ...] = (
    summary,
    findings,
    comparison,
    accuracy,
    latency,
    kernels,
    memory,
    quantization,
    passes,
    stages,
    recipe,
    environment,
)


def render_page(report: Mapping[str, Any]) -> str:
    """The page; a report with any of its fields missing gives one that says so."""
    shown = cleaned(report)
    tone, words = verdict(shown)
    return _template().render(
        name=shortened(shown.get("recipe") or "unnamed"),
        tone=tone,
        verdict=words,
        chips=_chips(shown),
        sections=[section(shown) for section in SECTIONS],
        style=Markup(_text("style.css")),  # noqa: S704 - our own file
        script=Markup(_text("script.js")),  # noqa: S704 - our own file
        script_hash=_script_hash(),
    )


def _chips(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the head of the page says of the build."""
    target, key = part(report, "target"), str(report.get("key") or "")
    threads = int(amount(target.get("threads")))
    words = [str(target[name]) for name in ("kind", "arch", "precision") if target.get(name)]
    words += [counted(threads, "thread")] if threads else []
    chips = [("for", " · ".join(words))]
    chips += [("built", f"{str(report['time'])[:16].replace('T', ' ')} UTC")] if report.get("time") else []
    return [*chips, *([("package", key[:12])] if key else [])]


@cache
def _template() -> Template:
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("page.html")


@cache
def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _script_hash() -> str:
    """What the page's policy lets run: this script and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(_text('script.js').encode()).digest()).decode()}"
