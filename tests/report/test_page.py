"""The page: whole and well-formed for any report, nothing of a report is markup, nothing is loaded, small."""

from __future__ import annotations

import html
import html.parser
import re
from typing import Any

import pytest
from samples import HOSTILE, built_report, damaged_reports, full_report, hostile_report, language_report

from pydoit.report.page import SECTIONS, render_page

VOID = {"meta", "link", "br", "img", "input", "hr"}
LIMIT = 3_000_000


class Outline(html.parser.HTMLParser):
    """What a browser would see: elements must be closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if len(attrs) != len(dict(attrs)):
            self.faults.append(f"{tag}: an attribute twice")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing, line {self.getpos()[0]}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def outline(report: dict[str, Any]) -> Outline:
    page = render_page(report)
    seen = Outline()
    seen.feed(page)
    seen.close()
    assert not seen.faults
    assert not seen.open
    return seen


def attributes(seen: Outline, tag: str) -> list[dict[str, str | None]]:
    return [found for name, found in seen.elements if name == tag]


@pytest.mark.parametrize("make", [built_report, full_report, language_report, hostile_report, lambda: full_report(1)])
def test_all_sections_are_there_once_and_well_formed(make: Any) -> None:
    seen = outline(make())
    sections = [item["id"] for item in attributes(seen, "section")]
    assert len(sections) == len(SECTIONS) == len(set(sections))
    identities = [item["id"] for _, item in seen.elements if "id" in item]
    assert len(identities) == len(set(identities)), "an id twice"
    links = {item["href"] for item in attributes(seen, "a")}
    assert {f"#{name}" for name in sections} <= links
    assert {link.removeprefix("#") for link in links if link} <= set(identities)
    labelled = {name for _, item in seen.elements for name in (item.get("aria-labelledby") or "").split()}
    assert labelled <= set(identities)


def test_tables_have_captions_and_scopes() -> None:
    seen = outline(full_report())
    assert len(attributes(seen, "table")) == len(attributes(seen, "caption")) > 8
    assert all(item.get("scope") in ("col", "row") for item in attributes(seen, "th"))


def test_nothing_is_loaded() -> None:
    page = render_page(full_report())
    seen = outline(full_report())
    for _, item in seen.elements:
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            assert (item.get(name) or "#").startswith(("#", "data:,"))
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "default-src 'none'" in page


def test_names_are_text_wherever_they_stand() -> None:
    page = render_page(hostile_report())
    seen = outline(hostile_report())
    assert len(attributes(seen, "script")) == 1
    assert not attributes(seen, "img")
    assert not attributes(seen, "b")
    assert not [name for _, item in seen.elements for name in item if name.startswith("on")]
    assert "49" not in [text.strip() for text in seen.texts], "a template in a name was run"
    assert html.escape(HOSTILE[0], quote=False) in page
    assert "\x00" not in page
    assert "\u202e" not in page
    page.encode()


def test_a_long_name_is_shortened() -> None:
    assert "x" * 1500 not in render_page(hostile_report())


def test_the_policy_lets_our_script_run() -> None:
    import base64
    import hashlib

    page = render_page(built_report())
    script = page.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html.unescape(page)


@pytest.mark.parametrize("count", [1, 27, 2000])
def test_it_stays_small(count: int) -> None:
    assert len(render_page(full_report(count)).encode()) < LIMIT


def test_a_damaged_report_still_gives_a_page() -> None:
    reports = damaged_reports()
    assert len(reports) > 300
    for report in reports:
        page = render_page(report)
        assert page.rstrip().endswith("</html>")
        assert "nan" not in re.sub(r"[a-z]*nan[a-z]+|[a-z]+nan", "", page.partition("<main")[2].lower())


def test_absent_data_leave_a_reason() -> None:
    page = render_page({"recipe": "bare", "stages": [], "target": {}})
    for reason in ("No diagnosis", "No earlier measurement", "Nothing was compared", "Nothing was measured", "The resolved recipe is not",
                   "No pass log", "No stage has run", "No measurements of other engines"):  # fmt: skip
        assert reason in page, reason
    assert "<figure>" not in page


def test_a_failed_build_says_so_first() -> None:
    report = built_report()
    report["stages"][7].update(status="failed", reason="max_abs is 0.5, above 0.001 (output 'y', sample 3)")
    report["library"] = None
    page = render_page(report)
    assert "✗ failed" in page.partition("</h1>")[0]
    assert "Nothing was published: verify failed. Max_abs is 0.5, above 0.001" in html.unescape(page)


def test_a_language_model_has_prefill_decode_and_layers() -> None:
    page = render_page(language_report())
    for text in ("Prefill, by tokens of the prompt", "Decode, by sequences", "Errors by layer", "excluded by the recipe",
                 "26.8 % of float32", "Latency of a decoded token"):  # fmt: skip
        assert text in page, text
