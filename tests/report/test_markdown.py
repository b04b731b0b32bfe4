"""The summary for a pull request: a table that stays a table, figures beside the previous ones, findings."""

from __future__ import annotations

from samples import damaged_reports, full_report, hostile_report, language_report

from pydoit.report.markdown import make_markdown, plain


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def test_figures_and_findings() -> None:
    text = make_markdown(full_report())
    assert text.startswith("### opennsfw: ✓ published\n")
    assert "| latency, median | 7.36 ms | 9.64 ms | −23.7 % | 7.14 ms | +3.1 % |" in text
    assert "| accuracy | ✓ passed against onnxruntime (8 samples) | – |" in text
    assert "runs mostly in scalar code (up to 2.40 ms (−32.6 %))" in text
    assert "2 threads, n = 30" in text


def test_every_row_has_the_same_columns() -> None:
    for report in (full_report(), language_report()):
        table = rows(make_markdown(report))
        assert len({line.count("|") for line in table}) == 1
        assert len(table) > 5


def test_names_are_no_markup() -> None:
    text = make_markdown(hostile_report())
    assert "<script>" not in text
    assert len({line.count("|") - line.count("\\|") for line in rows(text)}) == 1
    assert plain("@team `x` [a](b) <i>|\n# y") == "@\u200bteam " + r"\`x\` \[a\](b) \<i\>\| \# y"


def test_damaged_reports() -> None:
    for report in damaged_reports():
        assert make_markdown(report).startswith("### ")
