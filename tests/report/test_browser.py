"""The page in a real Chromium: silent, alone, every plot drawn at both widths and in both schemes, usable by keyboard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from samples import built_report, full_report, hostile_report, language_report

from pydoit.report.page import render_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

REPORTS = {"full": full_report, "built": built_report, "language": language_report, "many": lambda: full_report(2000),
           "hostile": hostile_report, "one kernel": lambda: full_report(1)}  # fmt: skip
WIDTHS, SCHEMES = (1400, 400), ("light", "dark")
OUTSIDE = """svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('rect, circle, line, text, path')]
    .filter(e => e.checkVisibility() && !e.closest('defs'))
    .map(e => [e, e.getBoundingClientRect()])
    .filter(([e, b]) => b.left < box.left - 1.5 || b.right > box.right + 1.5 || b.top < box.top - 1.5 || b.bottom > box.bottom + 1.5)
    .map(([e, b]) => `${e.outerHTML.slice(0, 160)} ${b.left - box.left} ${b.right - box.right} ${b.top - box.top} ${b.bottom - box.bottom}`);
}"""
OVERFLOWING = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {name: folder / f"{name.replace(' ', '-')}.html" for name in REPORTS}
    for name, path in found.items():
        path.write_text(render_page(REPORTS[name]()), encoding="utf-8")
    return found


class Watched:
    """A page with all that it said and asked for."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", REPORTS)
def test_every_plot_is_drawn(browser: Any, pages: dict[str, Path], name: str, width: int, scheme: str) -> None:
    with Watched(browser, pages[name], width, scheme) as watched:
        page = watched.page
        assert watched.said == []
        assert [url for url in watched.asked if url != pages[name].as_uri() and not url.startswith("data:")] == []
        assert page.evaluate(OVERFLOWING) <= 0
        plots = page.locator("svg.plot")
        assert plots.count() == page.locator("figure").count() >= 2
        for plot in plots.all():
            box = plot.bounding_box()
            assert box["width"] > 250
            assert box["height"] > 25
            assert plot.locator("rect, circle, line, path").count() > 0
            assert plot.evaluate(OUTSIDE) == []


@pytest.mark.parametrize("name", ["full", "language"])
def test_colours_differ_by_scheme_and_contrast(browser: Any, pages: dict[str, Path], name: str) -> None:
    contrasts = """() => {
      const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
      const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
      const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (!c.endsWith(', 0)')) return c; } return 'rgb(255, 255, 255)'; };
      return [...document.querySelectorAll('p, dt, dd, td, th, caption, a, h1, h2, h3, figcaption, .badge, code, summary, li')]
        .filter(e => e.checkVisibility() && e.innerText.trim() && !e.classList.contains('skip')).map(e => {
          const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
          return [(a + 0.05) / (b + 0.05), e.outerHTML.slice(0, 120)]; }).filter(([ratio]) => ratio < 4.5);
    }"""
    backgrounds = set()
    for scheme in SCHEMES:
        with Watched(browser, pages[name], 1400, scheme) as watched:
            assert watched.page.evaluate(contrasts) == []
            backgrounds.add(watched.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2


def test_it_prints(browser: Any, pages: dict[str, Path]) -> None:
    with Watched(browser, pages["full"], 794) as watched:
        page = watched.page
        page.emulate_media(media="print")
        assert not page.locator("nav").is_visible()
        assert page.evaluate(OVERFLOWING) <= 0
        assert page.locator("svg.plot").count() > 5
        for plot in page.locator("svg.plot").all():
            assert plot.evaluate(OUTSIDE) == []
        assert len(page.pdf(format="A4")) > 20_000


def test_the_keyboard_reaches_everything_in_order(browser: Any, pages: dict[str, Path]) -> None:
    focused = """() => { const e = document.activeElement, b = e.getBoundingClientRect();
      return {text: (e.textContent || '').trim().slice(0, 40), tag: e.tagName, top: b.top + scrollY, shown: getComputedStyle(e).outlineStyle}; }"""
    with Watched(browser, pages["full"], 1400) as watched:
        page = watched.page
        page.keyboard.press("Tab")
        assert page.evaluate(focused)["text"] == "Skip to the report"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        tops, tags = [], set()
        for _ in range(60):
            page.keyboard.press("Tab")
            now = page.evaluate(focused)
            if now["tag"] == "BODY":
                break
            assert now["shown"] != "none", now
            tops.append(now["top"])
            tags.add(now["tag"])
        assert tops == sorted(tops)
        assert {"SUMMARY", "DIV"} <= tags


def test_a_long_table_is_sorted_and_filtered_by_keyboard(browser: Any, pages: dict[str, Path]) -> None:
    with Watched(browser, pages["many"], 1400) as watched:
        page = watched.page
        page.locator("summary", has_text="All 2,000 kernels").press("Enter")
        table = page.locator("table[data-long]")
        head = table.locator("thead th", has_text="could save")
        head.locator("button").press("Enter")
        assert head.get_attribute("aria-sort") == "descending"
        saved = table.locator("tbody tr").evaluate_all("rows => rows.map(row => Number(row.cells[9].dataset.value))")
        assert len(saved) == 2000
        assert saved == sorted(saved, reverse=True)
        head.locator("button").press("Space")
        assert head.get_attribute("aria-sort") == "ascending"
        page.locator("input[type=search]").fill("conv2d1999_")
        assert table.locator("tbody tr:not([hidden])").count() == 1
        assert page.locator("output").inner_text() == "1 of 2000"
        assert watched.said == []


def test_it_reads_the_same_without_scripts(browser: Any, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["full"].as_uri())
    assert page.locator("section").count() == 12
    assert page.locator("svg.plot").first.is_visible()
    context.close()
