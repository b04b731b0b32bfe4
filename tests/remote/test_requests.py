"""Deadlines, retries and the circuit breaker: what a dead, slow or failing remote costs."""

from __future__ import annotations

import threading
import time

import pytest

from pydoit.remote.requests import Requests
from pydoit.remote.transport import Moved, RemoteError


@pytest.fixture
def told() -> list[str]:
    return []


def test_quick_failures_are_tried_again(told: list[str]) -> None:
    failures = [OSError("500"), ConnectionResetError("reset")]

    def action(_: Moved) -> int:
        if failures:
            raise failures.pop()
        return 7

    assert Requests("x", 2.0, told.append).run(action) == 7
    assert told == []


def test_lasting_failures_switch_it_off_once(told: list[str]) -> None:
    requests, tries = Requests("x", 4.0, told.append), []

    def action(_: Moved) -> None:
        tries.append(1)
        raise OSError("503\nslow   down")

    started = time.monotonic()
    for _ in range(3):
        with pytest.raises(RemoteError, match="503"):
            requests.run(action)
    assert time.monotonic() - started < 2.5
    assert len(tries) == 5
    assert told == ["remote cache x is off for this command: 503 slow down"]


def test_a_refusal_is_not_tried_again(told: list[str]) -> None:
    requests, tries = Requests("x", 2.0, told.append), []

    def action(_: Moved) -> None:
        tries.append(1)
        raise PermissionError("403")

    with pytest.raises(RemoteError):
        requests.run(action)
    assert (len(tries), requests.is_off) == (1, True)


def test_what_is_not_there_is_no_failure(told: list[str]) -> None:
    requests = Requests("x", 2.0, told.append)

    def action(_: Moved) -> None:
        raise FileNotFoundError("404")

    with pytest.raises(FileNotFoundError):
        requests.run(action)
    assert not requests.is_off


def test_a_hanging_request_is_left_behind(told: list[str]) -> None:
    requests, release = Requests("x", 0.2, told.append), threading.Event()
    started = time.monotonic()
    with pytest.raises(RemoteError, match=r"no answer within 0\.2 s"):
        requests.run(lambda _: release.wait(30))
    assert time.monotonic() - started < 1
    release.set()
    assert len(told) == 1


def test_all_that_wait_are_told_at_once(told: list[str]) -> None:
    requests, release = Requests("x", 20.0, told.append), threading.Event()
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            requests.run(lambda _: release.wait(30))
        except RemoteError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    requests.switch_off("no more")
    for thread in threads:
        thread.join(2)
    release.set()
    assert len(errors) == 4


def test_a_long_request_that_gets_on_is_waited_for(told: list[str]) -> None:
    def action(moved: Moved) -> str:
        for _ in range(5):
            time.sleep(0.15)
            moved(1_000_000)
        return "done"

    assert Requests("x", 0.4, told.append).run(action, 5_000_000) == "done"
    assert told == []


def test_a_request_left_behind_ends_at_its_next_step(told: list[str]) -> None:
    ended = threading.Event()

    def action(moved: Moved) -> None:
        time.sleep(0.4)
        try:
            moved(1)
        except RemoteError:
            ended.set()
            raise

    with pytest.raises(RemoteError):
        Requests("x", 0.1, told.append).run(action)
    assert ended.wait(2)


def test_many_small_delays_come_to_an_end(told: list[str]) -> None:
    requests = Requests("x", 0.5, told.append)
    started = time.monotonic()
    with pytest.raises(RemoteError, match="slow"):  # noqa: PT012 - which of them is the last straw does not matter
        for _ in range(20):
            requests.run(lambda _: time.sleep(0.4))
    assert time.monotonic() - started < 3


def test_an_actions_own_time_out_is_a_failure_like_others(told: list[str]) -> None:
    def action(_: Moved) -> None:
        raise TimeoutError("connect timed out")

    with pytest.raises(RemoteError, match="connect timed out"):
        Requests("x", 0.5, told.append).run(action)


def test_the_end_of_a_command_tells_nobody(told: list[str]) -> None:
    requests = Requests("x", 0.5, told.append)
    requests.close()
    with pytest.raises(RemoteError):
        requests.run(lambda _: None)
    assert told == []
