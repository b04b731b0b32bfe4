"""Lines for people: a stage's start, progress and end on stderr, safe to call from several threads."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

from pydoit.results import Result

HEARTBEAT_SECONDS = 30.0


class Console:
    """On a terminal one status line is rewritten; elsewhere a line every half minute shows that work goes on."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._guard = threading.Lock()
        self._active: dict[tuple[str, str], str] = {}
        self._last_beat: dict[tuple[str, str], float] = {}
        self._has_status = False

    def started(self, recipe: str, stage: str) -> None:
        with self._guard:
            self._last_beat[recipe, stage] = time.monotonic()

    def running(self, recipe: str, stage: str, seconds: float, text: str) -> None:
        """Progress of a stage after `seconds`; `text` is its last line."""
        line = f"{recipe}: {stage} {seconds:.0f} s {text}".rstrip()
        with self._guard:
            self._active[recipe, stage] = line
            if self._is_terminal:
                self._draw()
            elif time.monotonic() - self._last_beat.get((recipe, stage), 0.0) >= HEARTBEAT_SECONDS:
                self._last_beat[recipe, stage] = time.monotonic()
                self._write(f"{line}\n")

    def ended(self, recipe: str, result: Result) -> None:
        with self._guard:
            self._active.pop((recipe, result.stage), None)
            seconds = f"{result.seconds:6.1f} s" if result.status in ("built", "failed") else " " * 8
            status = "FAILED" if result.status == "failed" else result.status
            line = f"{recipe}: {result.stage:<9} {status:<9} {seconds}  {result.reason}"
            self._erase()
            self._write(f"{line.rstrip()}\n")
            if self._active and self._is_terminal:
                self._draw()

    def note(self, text: str) -> None:
        with self._guard:
            self._erase()
            self._write(f"{text.rstrip()}\n")

    def _draw(self) -> None:
        import shutil

        width = shutil.get_terminal_size().columns - 1
        self._erase()
        self._write(" | ".join(self._active.values())[:width])
        self._has_status = True

    def _erase(self) -> None:
        if self._has_status:
            self._write("\r\x1b[K")
            self._has_status = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            pass  # nobody reads any more; the build goes on
