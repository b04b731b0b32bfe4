"""Runs a function on several items, each in a forked process: what crashes or hangs costs one item, not the search."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any


def run_isolated(function: Callable[[Any], Any], items: Sequence[Any], workers: int, seconds: float) -> list[Any]:
    """Return `function(item)` for each item, None where the process failed or took longer than `seconds`.

    Processes are forked, because a fresh one would import TVM for seconds; the caller must not have run TVM's thread
    pool, whose threads a fork loses.
    """
    waiting = list(enumerate(items))[::-1]
    running: dict[Connection, tuple[int, ForkProcess, float]] = {}
    results: list[Any] = [None] * len(items)
    while waiting or running:
        while waiting and len(running) < workers:
            number, item = waiting.pop()
            connection, process = _start(function, item)
            running[connection] = (number, process, time.monotonic() + seconds)
        nearest = min(deadline for _, _, deadline in running.values())
        ready = wait(list(running), timeout=max(0.0, nearest - time.monotonic()))
        now = time.monotonic()
        overdue = [connection for connection, entry in running.items() if entry[2] <= now]
        for finished in {*ready, *overdue}:
            assert isinstance(finished, Connection)
            number, process, _ = running.pop(finished)
            results[number] = _collect(finished, process, finished in ready)
    return results


def _start(function: Callable[[Any], Any], item: Any) -> tuple[Connection, ForkProcess]:
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(function, item, sending), daemon=True)
    process.start()
    sending.close()
    return receiving, process


def _work(function: Callable[[Any], Any], item: Any, sending: Connection) -> None:
    sending.send(function(item))
    sending.close()


def _collect(connection: Connection, process: ForkProcess, ready: bool) -> Any:
    """Return what the process sent, None when it ended without sending or is late; the process is gone afterwards."""
    result = None
    if ready:
        try:
            result = connection.recv()
        except EOFError:
            result = None
    else:
        process.kill()
    connection.close()
    process.join()
    return result
