"""Who times a candidate's library: this machine, or a device behind TVM's RPC tracker."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pydoit.cpus import CPU_LANES
from pydoit.errors import StageError
from pydoit.farm.tracker import BUSY_SECONDS, Device, TrackerError, take_server
from pydoit.kernels.isolation import run_isolated
from pydoit.tvm_compat import meta_schedule, tvm

RUN_SECONDS = 20.0
"""A candidate that takes longer to measure is given up."""
SLACK_SECONDS = 5.0
"""How much later than the server's time-out we stop waiting for its answer."""


class Timer(Protocol):
    """Times libraries, one after the other."""

    def seconds(self, function: Any, path: Path) -> float | None:
        """The least seconds of one call of the library at `path`, made of `function`; None where it could not be measured."""

    def check(self, function: Any, path: Path) -> None:
        """Try a first library, which must run. Raises StageError where it does not."""


class LocalTimer:
    """Times on this machine."""

    def seconds(self, function: Any, path: Path) -> float | None:
        (least,) = run_isolated(partial(_time_here, function), [path], 1, RUN_SECONDS)
        return None if least is None else float(least)

    def check(self, function: Any, path: Path) -> None:
        """Nothing: what is compiled runs here, or each candidate fails."""


@dataclass(frozen=True)
class Measured:
    """What a device told of one library."""

    seconds: float
    cpu: str
    """LLVM's name of the device's CPU; empty where the device has only TVM's runtime."""


@dataclass(frozen=True)
class Unmeasured:
    """Why a library has no time."""

    reason: str
    no_device: bool
    """There was nothing to measure it on, so that the next one will not do better."""


@dataclass(frozen=True)
class RemoteTimer:
    """Times on a device; each library in a session of its own, in a forked process that can be killed."""

    device: Device
    arch: str
    """What the libraries are compiled for."""
    threads: int
    """Threads on the device; 0 for TVM's choice there."""
    tell: Callable[[str], None] = field(default=lambda _: None)
    """Gets the reason of each failure."""

    def seconds(self, function: Any, path: Path) -> float | None:
        outcome = self._outcome(function, path)
        if isinstance(outcome, Measured):
            return outcome.seconds
        if outcome.no_device:
            raise StageError(
                f"tune: the tracker {self.device.tracker} {outcome.reason}; what was found is kept: once the device is back, "
                "run the same command again"
            )
        self.tell(f"a candidate failed on the device: {outcome.reason}")
        return None

    def check(self, function: Any, path: Path) -> None:
        outcome = self._outcome(function, path)
        if isinstance(outcome, Measured):
            self.tell(f"measuring on {self.device}{outcome.cpu and f', a {outcome.cpu}'}")
            return
        if outcome.no_device:
            raise StageError(f"tune: the tracker {self.device.tracker} {outcome.reason}")
        raise StageError(
            f"tune: the device {self.device} does not run what is compiled here ({outcome.reason}); it needs a CPU that runs "
            f"{self.arch} code, and TVM {tvm.__version__}"
        )

    def _outcome(self, function: Any, path: Path) -> Measured | Unmeasured:
        work = partial(_time_there, self, function)
        (outcome,) = run_isolated(work, [path], 1, BUSY_SECONDS + RUN_SECONDS + 4 * SLACK_SECONDS)
        assert outcome is None or isinstance(outcome, Measured | Unmeasured)
        return outcome or Unmeasured(f"no answer within {RUN_SECONDS + SLACK_SECONDS:.0f} s", no_device=False)


def _time_here(function: Any, path: Path) -> float:
    """Return the least seconds of one call over several short series, on random data."""
    local = meta_schedule.runner.local_runner
    arguments = local.default_alloc_argument(tvm.cpu(), _shapes(function), 1)
    seconds = local.default_run_evaluator(tvm.runtime.load_module(str(path)), tvm.cpu(), _series(), arguments)
    return float(min(seconds))


def _time_there(timer: RemoteTimer, function: Any, path: Path) -> Measured | Unmeasured:
    """The same in a session of a server that the tracker gives."""
    try:
        host, port, match = take_server(timer.device)
    except TrackerError as error:
        return Unmeasured(str(error), no_device=True)
    # The session's end by the server may never arrive; a signal also ends what waits inside of TVM.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, RUN_SECONDS + SLACK_SECONDS)
    remote = meta_schedule.runner.rpc_runner
    try:
        session = tvm.rpc.connect(host, port, match, session_timeout=RUN_SECONDS)
        cpu = _cpu_of(session)
        if CPU_LANES.get(cpu, 16) < CPU_LANES[timer.arch]:  # it would die of the code, and TVM's server with it
            return Unmeasured(f"its CPU is {cpu}", no_device=False)
        if timer.threads:
            session.get_function("runtime.config_threadpool")(1, timer.threads)
        library = remote.default_upload_module(session, str(path), path.name)
        arguments = remote.default_alloc_argument(session, session.cpu(), _shapes(function), 1)
        seconds = remote.default_run_evaluator(session, library, session.cpu(), _series(), arguments)
        return Measured(float(min(seconds)), cpu)
    except Exception as error:  # noqa: BLE001 - TVM raises what the server tells
        return Unmeasured(_line(error), no_device=False)


def _cpu_of(session: Any) -> str:
    try:
        return str(session.get_function("target.llvm_get_system_cpu")())
    except Exception:  # noqa: BLE001 - a server without the compiler raises what the RPC makes of it
        return ""


def _shapes(function: Any) -> list[Any]:
    return [info.as_json() for info in meta_schedule.arg_info.ArgInfo.from_prim_func(function)]


def _series() -> Any:
    return meta_schedule.runner.EvaluatorConfig(number=1, repeat=12, min_repeat_ms=2)


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200]
