"""Isolated calls: a crash or a hang costs one item."""

from __future__ import annotations

import os
import signal
import time

from pydoit.kernels.isolation import run_isolated


def behave(item: str) -> str:
    if item == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if item == "hang":
        time.sleep(60)
    if item == "raise":
        raise SystemExit(3)
    return item.upper()


def test_results_keep_their_places() -> None:
    started = time.monotonic()
    found = run_isolated(behave, ["a", "crash", "b", "hang", "raise", "c"], workers=2, seconds=2.0)
    assert found == ["A", None, "B", None, None, "C"]
    assert time.monotonic() - started < 30
