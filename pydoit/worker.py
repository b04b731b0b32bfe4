"""Runs one stage in a process of its own: `python -m pydoit.worker JOB.json`."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

PROGRESS_VARIABLE = "MODELBUILD_PROGRESS"
_PR_SET_PDEATHSIG = 1


def progress(text: str) -> None:
    """Show one line to the user while the stage runs."""
    descriptor = os.environ.get(PROGRESS_VARIABLE)
    if descriptor:
        with contextlib.suppress(OSError):
            os.write(int(descriptor), (" ".join(text.split()) + "\n").encode())


def main(arguments: list[str]) -> int:
    """Run the job and leave `result.json` beside it; the exit status is 0 whenever that file is written."""
    _die_with_parent()
    job_path = Path(arguments[0])
    job = json.loads(job_path.read_bytes())
    _extend_import_path(job)
    result = _run(job)
    temporary = job_path.with_name("result.json.tmp")
    temporary.write_text(json.dumps(result, default=str))
    temporary.replace(job_path.with_name("result.json"))
    return 0


def _run(job: dict[str, Any]) -> dict[str, Any]:
    from pydoit.errors import Deferred, GateError, ModelBuildError
    from pydoit.stages import load_stage

    try:
        stage = load_stage(job["stage"])
        inputs = {name: Path(path) for name, path in job["inputs"].items()}
        measurements = stage.run(stage.Spec.model_validate(job["spec"]), inputs, Path(job["out"]))
    except Deferred as error:
        return {"status": "deferred", "reason": str(error)}
    except GateError as error:
        return {"status": "failed", "reason": str(error), "measurements": error.measurements}
    except ModelBuildError as error:
        traceback.print_exc()
        return {"status": "failed", "reason": str(error)}
    except MemoryError:
        traceback.print_exc()
        return {"status": "failed", "reason": "out of memory; build on a machine with more, or a smaller model"}
    except Exception as error:  # noqa: BLE001 - a stage runs TVM's and the user's code, which may raise anything
        traceback.print_exc()
        return {"status": "failed", "reason": _one_line(error), "internal": True}
    return {"status": "built", "measurements": measurements}


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[-1] if lines else ''}"
    return text if len(text) <= 300 else f"{text[:297]}..."


def _extend_import_path(job: dict[str, Any]) -> None:
    """The user's factory lies in the workspace, its packages in the fetched ones; installed packages come first."""
    sys.path.append(job["root"])
    fetched = job["inputs"].get("fetch")
    packages = sorted(Path(fetched, "packages").glob("*")) if fetched else []
    sys.path.extend(str(path) for path in packages)


def _die_with_parent() -> None:
    """End when the building process ends, however it ends.

    The kernel's parent-death signal kills this process even inside a compiler; a thread that waits for the end of the
    life line on stdin also kills what this process has started.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):
                continue
        os.killpg(0, signal.SIGKILL)

    if os.getpgrp() == os.getpid():
        threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
