"""Asks a remote within deadlines, again after quick failures, and never again once it has failed for good."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from pydoit.remote.transport import DamagedError, Moved, RemoteError

T = TypeVar("T")

TRIES = 5
FIRST_PAUSE_SECONDS = 0.1
FREE_SECONDS = 0.25
"""What a request may take without being counted as late."""
SLOWEST_BYTES_PER_SECOND = 1e6


class Requests:
    """A circuit breaker around all requests of one command to one remote.

    A request runs in a thread of its own, which is left behind when it does not get on for `seconds`. Quick failures are
    tried again with growing pauses within half of that time. The first request that fails for good switches the remote off:
    all that wait are told, one line goes to the user. So do many small delays that come to `seconds` together.
    """

    def __init__(self, label: str, seconds: float, tell: Callable[[str], None]) -> None:
        self.seconds = seconds
        self.reason = ""
        self.tell = tell
        self._label = label
        self._late = 0.0
        self._guard = threading.Lock()
        self._waiting: set[Future[Any]] = set()
        self._off = threading.Event()

    @property
    def is_off(self) -> bool:
        return self._off.is_set()

    def run(self, action: Callable[[Moved], T], size: int = 0) -> T:
        """What `action` returns. It may call its argument to show that it gets on; `size` bytes are expected to move.

        Raises FileNotFoundError and DamagedError as the action does, RemoteError when the remote is off or just went off.
        """
        end = time.monotonic() + self.seconds / 2
        pause = FIRST_PAUSE_SECONDS
        for last in (*[False] * (TRIES - 1), True):
            if self.is_off:
                raise RemoteError(self.reason)
            try:
                return self._timed(action, size)
            except (FileNotFoundError, RemoteError):
                raise
            except Exception as error:
                if last or isinstance(error, PermissionError) or time.monotonic() + pause > end:
                    self.switch_off(_one_line(error))
                    raise RemoteError(self.reason) from error
            self._off.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, guards no secret
            pause *= 2
        raise AssertionError("the last try returns or raises")

    def switch_off(self, reason: str) -> None:
        """No more requests in this command; those that wait end at once, and the user is told."""
        if self._stop(reason):
            self.tell(f"remote cache {self._label} is off for this command: {reason}")

    def close(self) -> None:
        """The command ends: nobody waits any more."""
        self._stop("the command ended")

    def _stop(self, reason: str) -> bool:
        with self._guard:
            if self.is_off:
                return False
            self.reason = reason
            self._off.set()
            waiting = list(self._waiting)
        for future in waiting:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(RemoteError(reason))
        return True

    def _timed(self, action: Callable[[Moved], T], size: int) -> T:
        started = time.monotonic()
        with self._guard:
            others = len(self._waiting)
        try:
            return self._within(action)
        finally:
            taken = (time.monotonic() - started - FREE_SECONDS) / (1 + others)
            self._charge(max(0.0, taken - size / SLOWEST_BYTES_PER_SECOND))

    def _charge(self, seconds: float) -> None:
        with self._guard:
            self._late += seconds
            late = self._late
        if late > self.seconds:
            self.switch_off(f"it is slow ({late:.0f} s lost)")

    def _within(self, action: Callable[[Moved], T]) -> T:
        future: Future[T] = Future()
        end = time.monotonic() + self.seconds

        def moved(size: int) -> None:
            nonlocal end
            if future.done():
                raise RemoteError("nobody waits for this request any more")
            end = time.monotonic() + self.seconds

        def work() -> None:
            try:
                result = action(moved)
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(error)
            else:
                with contextlib.suppress(InvalidStateError):
                    future.set_result(result)

        with self._guard:
            self._waiting.add(future)
        try:
            threading.Thread(target=work, daemon=True, name="remote-cache").start()
            while True:
                try:
                    return future.result(max(0.0, end - time.monotonic()))
                except TimeoutError:
                    if not future.done() and time.monotonic() < end:
                        continue
                    self._give_up(future)
        finally:
            with self._guard:
                self._waiting.discard(future)

    def _give_up(self, future: Future[Any]) -> None:
        """Raise what the action raised, if that is what ended the wait; else the remote hangs."""
        reason = f"no answer within {self.seconds:g} s"
        with contextlib.suppress(InvalidStateError):
            future.set_exception(RemoteError(reason))
        error = future.exception()
        if isinstance(error, RemoteError) and not isinstance(error, DamagedError):
            self.switch_off(reason)
        if error is not None:
            raise error


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:197]}..."
