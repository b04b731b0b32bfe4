"""docs/ci.md: its YAML parses, its commands and options exist, and its shell scripts do what they say on a tiny model."""

from __future__ import annotations

import getopt
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli
import yaml
from conftest import TestWorkspace, make_workspace

ROOT = Path(__file__).parents[1]
PAGES = ("docs/ci.md", "README.md", "docs/security.md")
FENCE = re.compile(r"(?:<!-- run: (?P<name>\w+) -->\n)?^```(?P<kind>bash|yaml)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, kind: str) -> list[tuple[str, str]]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(match["name"] or "", match["text"]) for match in FENCE.finditer(text) if match["kind"] == kind]


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def doit_lines(script: str) -> Iterator[list[str]]:
    """The words after `doit` of each call in a script."""
    for line in re.sub(r"\$\{\{.*?\}\}", "x", script).splitlines():
        if "doit " not in line:
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = [word if word not in ("&&", "||", ";", "|", ">", ">>") else "&&" for word in lexer]
        for command in " \n".join(words).split("&&"):
            parts = [word for word in command.split(" \n") if word]
            if parts and parts[0] == "doit":
                yield parts[1:]


def calls() -> list[tuple[str, list[str]]]:
    found = [(page, words) for page in PAGES for _, text in blocks(page, "bash") for words in doit_lines(text)]
    values = [yaml.safe_load(text) for _, text in blocks("docs/ci.md", "yaml")]
    return found + [("yaml", words) for text in strings(values) for words in doit_lines(text)]


COMMANDS = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["doit.COMMAND"]


@pytest.mark.parametrize(("page", "words"), calls())
def test_every_command_and_option_exists(page: str, words: list[str]) -> None:
    module, _, name = COMMANDS[words[0]].partition(":")
    command = getattr(importlib.import_module(module), name)()
    parser = command.cmdparser
    getopt.gnu_getopt(words[1:], parser.get_short(), parser.get_long())


def test_the_pages_show_what_ci_needs() -> None:
    shown = {words[0] for _, words in calls()}
    assert {"lock", "build", "pack", "unpack", "report", "bench", "cache"} <= shown
    assert {name for name, _ in blocks("docs/ci.md", "bash")} >= {"compile", "verify", "collect"}


def test_github_and_gitlab() -> None:
    github, gitlab = (yaml.safe_load(text) for _, text in blocks("docs/ci.md", "yaml"))
    for job in github["jobs"].values():
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    assert github["jobs"]["verify"]["needs"] == "compile"
    assert github["permissions"] == {"contents": "read"}
    jobs = {name: job for name, job in gitlab.items() if isinstance(job, dict)}
    assert {job["stage"] for job in jobs.values()} == set(gitlab["stages"])
    assert all(isinstance(line, str) for job in jobs.values() for line in job["script"])


def run(script: str, folder: Path, environment: dict[str, str]) -> None:
    text = dict(blocks("docs/ci.md", "bash"))[script]
    done = subprocess.run(
        ["bash", "-c", text, "ci", "tiny"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def only_doit(folder: Path) -> str:
    """A PATH on which bash, Python and doit are, and no compiler."""
    folder.mkdir()
    for name, target in (("doit", Path(sys.executable).with_name("doit")), ("python3", Path(sys.executable))):
        (folder / name).symlink_to(target)
    return str(folder)


def test_the_shell_scripts(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "cpu")
    assert workspace.doit("build", "tiny").returncode == 0
    assert workspace.doit("lock").returncode == 0
    secret = {"MODELBUILD_CACHE_SECRET": "a secret of this test"}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    run("compile", workspace.root, workspace.environment(PATH=path, **secret))

    gpu = tmp_path / "gpu"
    gpu.mkdir()
    shutil.copy(workspace.root / "tiny.bundle", gpu)
    other = TestWorkspace(gpu / "work", gpu / "cache")
    bash = shutil.which("bash")
    assert bash is not None
    Path(only_doit(tmp_path / "path"), "bash").symlink_to(bash)
    run("verify", gpu, other.environment(PATH=str(tmp_path / "path"), **secret))
    built = {stage["name"]: stage["status"] for stage in other.report()["stages"]}
    assert built == {**dict.fromkeys(built, "hit"), "verify": "built", "profile": "built", "package": "restored"}
    assert (gpu / "summary.md").read_text().startswith("### tiny: ")

    shutil.copy(gpu / "tiny.results", workspace.root)
    run("collect", workspace.root, workspace.environment(PATH=path, **secret))
    report = json.loads((workspace.root / "report.json").read_text())
    assert report["verify"]["passed"]
    assert {stage["key"] for stage in report["stages"]} >= {stage["key"] for stage in other.report()["stages"]}
