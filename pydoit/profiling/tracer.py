"""Traces the calls of a compiled model: when each kernel began and ended, and performance counters where there are any."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Any

SOURCE = Path(__file__).with_name("tracer.cc")
CAPACITY = 1 << 12
"""Events of a run that there is room for at first."""
_SYMBOL = "trace_event"
_BUILTIN = "vm.builtin."
_COUNTERS = 4

HARDWARE, SOFTWARE = 0, 1
COUNTERS: dict[str, tuple[int, int]] = {
    "cycles": (HARDWARE, 0),
    "instructions": (HARDWARE, 1),
    "cache_misses": (HARDWARE, 3),
    "task_clock_ns": (SOFTWARE, 1),
}
"""Name -> type and number of the event of perf_event_open(2). Virtual machines often have the software ones only."""


class _Event(ctypes.Structure):
    _fields_ = (
        ("nanoseconds", ctypes.c_int64),
        ("counters", ctypes.c_uint64 * _COUNTERS),
        ("name", ctypes.c_int32),
        ("begins", ctypes.c_int32),
    )


@dataclass(frozen=True)
class Step:
    """One call of a kernel."""

    kernel: str
    start_ms: float
    """Since the run began."""
    ms: float
    counters: dict[str, int] = field(default_factory=dict)
    """What was counted meanwhile, over all threads that this one started."""
    launch: dict[str, float] = field(default_factory=dict)
    """On a GPU: registers a thread, bytes of shared memory, occupancy in percent."""


@dataclass(frozen=True)
class Run:
    """One traced call of a model."""

    ms: float
    steps: tuple[Step, ...]


class Tracer:
    """Compiled for this machine; make it before the model starts threads, so that they are counted."""

    def __init__(self) -> None:
        """Raises StageError where there is no C++ compiler."""
        from pydoit.kernels.cxx import ffi_folder, run_compiler
        from pydoit.runtime.library import tvm_ffi

        headers = ffi_folder() / "include"
        with TemporaryDirectory() as folder:
            library = Path(folder) / "tracer.so"
            command = ["-shared", "-fPIC", "-O2", "-std=c++17", f"-I{headers}", str(SOURCE), "-o", str(library)]
            run_compiler(command, Path(folder))
            self._library = ctypes.CDLL(str(library))
            self.instrument = tvm_ffi().load_module(str(library))[_SYMBOL]
            """What the virtual machine's `set_instrument` takes."""
        self._library.trace_count.restype = ctypes.c_bool
        self._library.trace_count.argtypes = (ctypes.c_uint32, ctypes.c_uint64)
        self._library.trace_begin.argtypes = (ctypes.c_size_t, ctypes.c_bool)
        self._library.trace_events.restype = self._library.trace_lost.restype = ctypes.c_size_t
        self._library.trace_name.restype = ctypes.c_char_p
        self.counters = tuple(name for name, event in COUNTERS.items() if self._library.trace_count(*event))
        """Those that this machine has."""

    def run(self, call: Callable[[], Any], *, count: bool = False) -> Run:
        """Trace one call of a model whose instrument this is; with `count` read the counters, which costs time."""
        capacity = CAPACITY
        while True:
            self._library.trace_begin(capacity, count)
            started = perf_counter_ns()
            call()
            ended = perf_counter_ns()
            lost = self._library.trace_lost()
            if not lost:
                break
            capacity += 2 * lost
        return Run((ended - started) / 1e6, tuple(kernel_steps(self._events(), started, self.counters if count else ())))

    def _events(self) -> Iterator[tuple[str, bool, int, Sequence[int]]]:
        first = ctypes.POINTER(_Event)()
        for number in range(self._library.trace_events(ctypes.byref(first))):
            event = first[number]
            yield self._library.trace_name(event.name).decode(), bool(event.begins), event.nanoseconds, event.counters


class PlainTracer:
    """The same in Python, for machines without a C++ compiler: some microseconds slower a call, and without counters."""

    counters: tuple[str, ...] = ()

    def __init__(self) -> None:
        from pydoit.runtime.library import tvm_ffi

        self._events: list[tuple[str, bool, int]] = []
        self.instrument = tvm_ffi().convert(self._note)
        """What the virtual machine's `set_instrument` takes."""

    def run(self, call: Callable[[], Any], *, count: bool = False) -> Run:
        """Trace one call of a model whose instrument this is."""
        assert not count
        self._events.clear()
        started = perf_counter_ns()
        call()
        ended = perf_counter_ns()
        events = ((name, begins, at, ()) for name, begins, at in self._events)
        return Run((ended - started) / 1e6, tuple(kernel_steps(events, started, ())))

    def _note(self, _function: Any, name: str, begins: bool, _result: Any, *_arguments: Any) -> None:
        self._events.append((str(name), bool(begins), perf_counter_ns()))


def make_tracer() -> Tracer | PlainTracer:
    """The tracer that this machine can have."""
    from pydoit.tools import compiler

    return Tracer() if compiler() else PlainTracer()


def kernel_steps(
    events: Iterable[tuple[str, bool, int, Sequence[int]]], started: int, counters: Sequence[str]
) -> Iterator[Step]:
    """The kernels among (name, begins, nanoseconds, counts): calls without calls in them that are not the machine's own.

    The name counts where a call begins.
    """
    open_calls: list[tuple[str, int, Sequence[int], bool]] = []
    for name, begins, at, counts in events:
        if begins:
            open_calls = [(*outer[:3], True) for outer in open_calls]
            open_calls.append((name, at, counts, False))
            continue
        begun, start, before, has_inner = open_calls.pop()
        if not has_inner and not begun.startswith(_BUILTIN):
            counted = {counter: counts[place] - before[place] for place, counter in enumerate(counters)}
            yield Step(begun, (start - started) / 1e6, (at - start) / 1e6, counted)
