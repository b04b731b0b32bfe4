"""What a build writes beside the artifact, what the command prints, and what reports are compared with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import TestWorkspace, make_workspace

from pydoit.errors import UserError
from pydoit.lockfile.entry import Artifact, Entry
from pydoit.lockfile.file import write_lock
from pydoit.regression.journal import Experiment, Journal
from pydoit.report.earlier import locked_of, previous_of
from pydoit.report.peers import read_peers
from pydoit.report.write import without_credentials, write_report
from pydoit.workspace import Workspace, open_workspace

PEERS = {"schema": 1, "rows": [
    {"model": "tiny", "peer": "onnxruntime", "ours_ms": 1.0, "peer_ms": 2.0, "ratio": 0.5, "ci95": [0.4, 0.6], "threads": 2},
    {"model": "other", "peer": "torch", "ours_ms": 1.0, "peer_ms": 2.0, "ratio": 0.5},
]}  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    workspace = make_workspace(tmp_path_factory.mktemp("written"))
    workspace.build()
    return workspace


def folder(workspace: TestWorkspace) -> Path:
    return workspace.root / "artifacts/tiny"


def test_a_build_writes_the_page(built: TestWorkspace) -> None:
    report, page = built.report(), (folder(built) / "report.html").read_text(encoding="utf-8")
    assert "tiny" in page
    assert report["recipe_values"]["profile"]["repeat"] == 3
    assert report["environment"]["tools"]["apache-tvm"]
    assert {item["path"] for item in report["artifact"]} >= {"lib.so", "manifest.json"}
    assert str(built.root) not in page + json.dumps(report["recipe_values"]) + json.dumps(report["environment"])


def test_reports_are_no_part_of_the_artifact(built: TestWorkspace) -> None:
    (folder(built) / "trace.json").write_text("{}")
    checked = built.doit("verify-artifact", "artifacts/tiny")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert set(built.build().values()) == {"hit"}
    statement = json.loads((folder(built) / "provenance.json").read_bytes())
    assert not {item["name"] for item in statement["subject"]} & {"report.html", "report.json", "trace.json"}


def test_a_build_with_nothing_to_do_writes_nothing_but_what_is_missing(built: TestWorkspace) -> None:
    built.build()
    page = folder(built) / "report.html"
    before = page.stat().st_mtime_ns
    built.build()
    assert page.stat().st_mtime_ns == before
    page.unlink()
    built.build()
    assert page.is_file()


def test_the_next_measurement_is_compared_with_the_last(built: TestWorkspace) -> None:
    first = built.report()["profile"]["latency_ms"]["median"]
    built.build("tiny", "--set", "profile.repeat=4")
    previous = built.report()["previous"]
    assert previous["figures"]["latency_ms"] == first
    assert previous["figures"]["library_bytes"] > 0
    assert "library" not in previous["figures"]
    assert (
        "faster than the previous build" in (page := (folder(built) / "report.html").read_text())
        or "slower than" in page
        or "same as" in page
    )


def test_the_command(built: TestWorkspace) -> None:
    shown = built.doit("report", "tiny", "--format", "html")
    assert (shown.returncode, shown.stdout) == (0, "artifacts/tiny/report.html\n")
    shown = built.doit("report", "tiny", "--format", "markdown")
    assert shown.stdout.startswith("### tiny: ✓ published\n")
    shown = built.doit("report", "tiny", "--format", "html", "-o", "page.html")
    assert (shown.returncode, shown.stdout) == (0, "page.html\n")
    assert (built.root / "page.html").read_text() == (folder(built) / "report.html").read_text()
    assert built.doit("report", "tiny").stdout.startswith("tiny")
    wrong = built.doit("report", "tiny", "-o", "x")
    assert wrong.returncode == 2
    assert "choose --format html" in wrong.stderr
    assert built.doit("report", "tiny", "--format", "hmtl").returncode == 2


def test_the_trace_of_a_report_with_a_timeline(built: TestWorkspace) -> None:
    report = built.report()
    report["profile"]["timeline"] = [{"kernel": "k", "start_ms": 0.0, "ms": 1.0}]
    write_report(folder(built), report)
    shown = built.doit("report", "tiny", "--format", "trace")
    assert (shown.returncode, shown.stdout) == (0, "artifacts/tiny/trace.json\n")
    assert json.loads((folder(built) / "trace.json").read_bytes())["traceEvents"]
    write_report(folder(built), {**report, "profile": {**report["profile"], "timeline": []}})
    assert not (folder(built) / "trace.json").exists()
    shown = built.doit("report", "tiny", "--format", "trace")
    assert shown.returncode == 2
    assert "no timeline" in shown.stderr


def test_peers_and_a_damaged_file_of_them(built: TestWorkspace) -> None:
    built.write("modelbuild.toml", 'schema = 1\ndefault = ["tiny"]\n[report]\npeers = "peers.json"\n')
    built.write("peers.json", json.dumps(PEERS))
    assert [peer["peer"] for peer in built.report()["peers"]] == ["onnxruntime"]
    built.write("peers.json", "{}")
    done = built.doit("build", "tiny", "--set", "profile.repeat=5")
    assert done.returncode == 0
    assert "peers.json: has no 'rows'" in done.stderr
    built.write("modelbuild.toml", 'schema = 1\n[report]\npears = "x"\n')
    assert "report.pears" in built.doit("report", "tiny").stderr
    built.write("modelbuild.toml", 'schema = 1\ndefault = ["tiny"]\n')


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "peers.json"), ({"schema": 2, "rows": []}, "not of schema 1"), ({"schema": 1}, "has no 'rows'"),
        ({"schema": 1, "rows": [{"peer": "x"}]}, "has no 'model'"),
        ({"schema": 1, "rows": [{"model": "tiny", "peer": "x", "ours_ms": 0, "peer_ms": 1, "ratio": 1}]}, "ours_ms is 0"),
        ({"schema": 1, "rows": [{"model": "tiny", "peer": "x", "ours_ms": 1, "peer_ms": 1}]}, "ratio is None"),
    ],
)  # fmt: skip
def test_peers_that_say_nothing_are_refused(tmp_path: Path, document: Any, said: str) -> None:
    (tmp_path / "peers.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match=said):
        read_peers(opened(tmp_path, "peers.json"), "tiny")


def test_peers_stay_inside_the_workspace(tmp_path: Path) -> None:
    for name in ("../peers.json", "/peers.json"):
        with pytest.raises(UserError, match="leaves the workspace"):
            read_peers(opened(tmp_path, name), "tiny")
    assert read_peers(opened(tmp_path, ""), "tiny") == []


def opened(root: Path, peers: str) -> Workspace:
    named = f'[report]\npeers = "{peers}"\n' if peers else ""
    (root / "modelbuild.toml").write_text(f"schema = 1\n{named}")
    return open_workspace(root)


def test_previous_is_the_latest_other_measurement() -> None:
    rows = [
        Experiment("profile", "tiny", f"change {ms}", {"latency_ms": ms, "library": "a"}, time=1e9) for ms in (3.0, 2.0, 1.0)
    ]
    report = {"profile": {"latency_ms": {"median": 1.0}}}
    found = previous_of(rows, report)
    assert found == {"time": "2001-09-09T01:46:40+00:00", "changed": "change 2.0", "figures": {"latency_ms": 2.0}}
    assert previous_of(rows[2:], report) is None
    assert previous_of([], {}) is None


def test_locked_figures_are_those_of_the_locked_library(tmp_path: Path) -> None:
    workspace = opened(tmp_path, "")
    rows = [
        Experiment("profile", "tiny", "", {"latency_ms": ms, "library": digest * 64}, time=1e9)
        for ms, digest in ((3.0, "a"), (2.0, "b"))
    ]
    assert locked_of(workspace, "tiny", rows, {}) is None
    entry = Entry(
        {"model": {"source": "onnx"}}, artifact={"lib.so": Artifact("a" * 64, 10), "manifest.json": Artifact("c" * 64, 5)}
    )
    write_lock(tmp_path, {"tiny": entry})
    found = locked_of(workspace, "tiny", rows, {"lib.so": "b" * 64})
    assert found is not None
    assert found["figures"] == {"latency_ms": 3.0, "artifact_bytes": 15, "library_bytes": 10}
    assert found["is_current"] is False
    same = locked_of(workspace, "tiny", rows, {"lib.so": "a" * 64, "manifest.json": "c" * 64})
    assert same is not None
    assert same["is_current"] is True


def test_the_journal_keeps_figures(built: TestWorkspace) -> None:
    rows = Journal(open_workspace(built.root).state).rows("tiny", "profile")
    assert {"latency_ms", "p95_ms", "library", "library_bytes", "max_abs"} <= set(rows[-1].figures)


def test_addresses_lose_what_may_be_secret() -> None:
    value = {"path": "https://user:word@host:1/a/b.onnx?token=x", "other": ["pypi:a==1#b", 3, None]}
    assert without_credentials(value) == {"path": "https://host:1/a/b.onnx", "other": ["pypi:a==1#b", 3, None]}
