"""doit generate as a user runs it: text, figures, options, faults and exit statuses, on a model that recites one text."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.conftest import RECIPE, TestWorkspace
from tests.reciter import TEXT, make_reciter_workspace

FIGURES = re.compile(r"prefill (\d+) tokens, (\d+\.\d) tokens/s; decode (\d+) tokens, (\d+\.\d) tokens/s\n")
ENDLESS = ("generate", "reciter", "--raw", "-p", "abc", "--temperature", "5", "--seed", "1")
"""Goes on until the cache is full."""


@pytest.fixture(scope="module")
def reciter(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    workspace = make_reciter_workspace(tmp_path_factory.mktemp("reciter"))
    first = workspace.doit("generate", "reciter", "-p", "Hi")
    assert first.returncode == 0, first.stderr
    assert first.stdout == f"{TEXT}\n"
    assert "reciter: compile   built" in first.stderr
    assert FIGURES.fullmatch(first.stderr.splitlines(keepends=True)[-1])
    return workspace


def generate(workspace: TestWorkspace, *arguments: str, **variables: str) -> str:
    """The text, without the line's end."""
    done = workspace.doit("generate", "reciter", *arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def test_a_built_model_is_not_built_again_and_stderr_has_the_figures_alone(reciter: TestWorkspace) -> None:
    done = reciter.doit("generate", "reciter", "-p", "Hi", "--max-tokens", "3")
    assert (done.returncode, done.stdout) == (0, "Hello\n")
    figures = FIGURES.fullmatch(done.stderr)
    assert figures is not None, done.stderr
    assert int(figures[1]) > 10
    assert figures[3] == "3"
    assert float(figures[2]) > 0
    assert float(figures[4]) > 0


def test_raw_goes_on_after_the_prompt(reciter: TestWorkspace) -> None:
    assert generate(reciter, "--raw", "-p", "Hello,") == TEXT.removeprefix("Hello,")
    assert generate(reciter, "--raw", "--prompt=1=2 Hello,") == TEXT.removeprefix("Hello,")
    assert generate(reciter, "-p", "a=b", "--system", "c=d") == TEXT


def test_a_prompt_from_standard_input(reciter: TestWorkspace) -> None:
    command = [sys.executable, "-m", "doit", "generate", "reciter", "--raw", "-p", "-"]
    for given, status in ((b"Hello,", 0), (b"", 2), (b"\xff", 2)):
        done = subprocess.run(
            command, cwd=reciter.root, env=reciter.environment(PYTHONIOENCODING="utf-8:strict"), input=given,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        assert done.stderr.count(b"\n") == 1
    assert b"no valid Unicode" in done.stderr


def test_greedy_is_the_default_and_seeds_repeat(reciter: TestWorkspace) -> None:
    assert generate(reciter, "-p", "Hi", "--temperature", "0") == generate(reciter, "-p", "Hi") == TEXT
    drawn = [generate(reciter, "-p", "Hi", "--temperature", "3", "--max-tokens", "20", "--seed", seed) for seed in "778"]
    assert drawn[0] == drawn[1] != drawn[2]
    assert generate(reciter, "-p", "Hi", "--temperature", "3", "--top-k", "1") == TEXT


def test_stop_strings_are_not_shown(reciter: TestWorkspace) -> None:
    assert generate(reciter, "-p", "Hi", "--stop", "rld! \U0001f9ff") == "Hello, wo"
    assert generate(reciter, "-p", "Hi", "--stop", "capitals", "--stop", "The ") == "Hello, world! \U0001f9ff"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("reciter", "-p", ""), "there is no prompt; write `-p PROMPT`"),
        (("reciter",), "there is no prompt"),
        (("-p", "Hi"), "name one recipe"),
        (("reciter", "tiny", "-p", "Hi"), "name one recipe"),
        (("recite", "-p", "Hi"), "there is no recipe 'recite'; did you mean 'reciter'"),
        (("tiny", "-p", "Hi"), "tiny is no language model"),
        (("reciter", "-p", "Hi " * 200), r"the prompt has \d+ tokens; the model's context is 256 and its cache holds 128"),
        (("reciter", "-p", "Hi", "--max-tokens", "0"), "--max-tokens 0: give at least 1"),
        (("reciter", "-p", "Hi", "--temperature", "warm"), "--temperature warm: not float"),
        (("reciter", "-p", "Hi", "--top-p", "0"), "top_p is 0.0; give a number above 0"),
        (("reciter", "-p", "Hi", "--temprature", "1"), "did you mean '--temperature'"),
        (("reciter", "-p", "Hi", "--top-k"), "option --top-k requires argument; see `doit help`"),
        (("reciter", "-p", "Hi", "--stop", ""), "a stop string is empty"),
        (("reciter", "-p", "Hi", "--raw", "--system", "Be kind"), "--raw has no messages"),
        (("reciter", "-p", "Hi", "--set", "model.kv_cache.tokns=64"), "did you mean 'tokens'"),
    ],
    ids=str,
)
def test_a_wrong_command_ends_with_2(reciter: TestWorkspace, arguments: tuple[str, ...], fault: str) -> None:
    if not (reciter.root / "recipes/tiny.toml").exists():
        reciter.write("recipes/tiny.toml", RECIPE)
        reciter.write("recipes/tiny_net.py", "def build(folder): ...\n")
    done = reciter.doit("generate", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(fault, done.stderr), done.stderr
    assert "Traceback" not in done.stderr


def test_a_build_that_fails_ends_with_1(reciter: TestWorkspace) -> None:
    done = reciter.doit("generate", "hollow", "-p", "Hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert "hollow: weights failed: model.path: there is no *.safetensors" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_reader_leaves_early(reciter: TestWorkspace) -> None:
    command = f"{sys.executable} -m doit {' '.join(ENDLESS)} | head -c 1 | wc -c"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=reciter.root, env=reciter.environment(), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr
    assert not re.search("Traceback|Exception|Error", done.stderr), done.stderr


@pytest.mark.parametrize(
    ("streams", "status", "fault"),
    [(">/dev/full", 1, "cannot be written (No space left"), (">&-", 0, "prefill"), ("2>&-", 0, ""), ("<&-", 0, "prefill")],
)
def test_streams_that_are_full_or_closed(reciter: TestWorkspace, streams: str, status: int, fault: str) -> None:
    command = f"{sys.executable} -m doit generate reciter -p Hi {streams}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=reciter.root, env=reciter.environment(), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert fault in done.stderr
    assert not re.search("Traceback|Exception", done.stderr), done.stderr


def test_a_terminal_without_the_letters(reciter: TestWorkspace) -> None:
    assert generate(reciter, "-p", "Hi", PYTHONIOENCODING="latin-1") == TEXT.replace("\U0001f9ff", "?")


def await_full(reading: int) -> None:
    """Wait until the pipe has taken more than the first line and the command can write no more."""
    deadline, held = time.monotonic() + 30, 0
    while time.monotonic() < deadline and held < 4096:
        held = int.from_bytes(fcntl.ioctl(reading, termios.FIONREAD, bytes(4)), sys.byteorder)
        time.sleep(0.05)
    assert held == 4096


def test_ctrl_c_ends_with_130_after_the_figures(reciter: TestWorkspace, tmp_path: Path) -> None:
    """The reader takes nothing, so that the text does not fit its pipe and the command is surely still at it."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    script = "import sys, doit.__main__ as m; print('x' * 4090, flush=True); sys.exit(m.main())"
    with (tmp_path / "errors").open("wb") as errors:
        command = [sys.executable, "-c", script, *ENDLESS]
        running = subprocess.Popen(command, cwd=reciter.root, env=reciter.environment(), stdout=writing, stderr=errors)
    os.close(writing)
    try:
        await_full(reading)
        running.send_signal(signal.SIGINT)
        os.set_blocking(reading, False)
        while running.poll() is None:
            try:
                os.read(reading, 65536)
            except BlockingIOError:
                time.sleep(0.05)
        assert running.returncode == 130
        text = (tmp_path / "errors").read_text()
        assert "Traceback" not in text
    finally:
        running.kill()
        os.close(reading)


def test_several_at_once_of_one_artifact(reciter: TestWorkspace) -> None:
    command = [sys.executable, "-m", "doit", "generate", "reciter", "-p", "Hi"]
    for path in (reciter.root / "artifacts").glob("reciter/*.json"):
        path.unlink()  # each finds the artifact incomplete and restores it
    pipe, environment = subprocess.PIPE, reciter.environment()
    running = [
        subprocess.Popen(command, cwd=reciter.root, env=environment, stdout=pipe, stderr=pipe, text=True) for _ in range(4)
    ]
    ended = [(*process.communicate(timeout=60), process.returncode) for process in running]
    for out, errors, status in ended:
        assert (status, out) == (0, f"{TEXT}\n"), errors
