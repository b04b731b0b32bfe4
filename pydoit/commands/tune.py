"""doit tune RECIPE: search for fast schedules and write the recipe's records file."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit import machine, process
from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD
from pydoit.commands.build import Build
from pydoit.console import Console
from pydoit.errors import StageError, UserError
from pydoit.farm.tracker import Device, require_server
from pydoit.session import Session

TRIALS = {"name": "trials", "long": "trials", "short": "", "type": int, "default": None,
          "help": "candidates measured for each kernel (default: the recipe's)"}  # fmt: skip
BUDGET = {"name": "budget", "long": "budget", "short": "", "type": str, "default": "",
          "help": "longest time, e.g. 20m (default: the recipe's)"}  # fmt: skip
AFRESH = {"name": "fresh", "long": "fresh", "short": "", "type": bool, "default": False,
          "help": "start from nothing instead of from the records file"}  # fmt: skip


class Tune(Build):
    name = "tune"
    doc_purpose = "measure schedules for a recipe's kernels and write its records file, to be checked in"
    doc_usage = "RECIPE[@VARIANT]"
    cmd_options = (*Build.cmd_options, TRIALS, BUDGET, AFRESH)
    only = ("optimize",)

    def build(self, options: dict[str, Any], names: list[str]) -> int:
        if len(names) != 1:
            raise UserError("doit tune takes one recipe; write `doit tune RECIPE`")
        device = self._device(options, names)
        assignments = [f"tune.trials={options['trials']}"] if options["trials"] is not None else []
        assignments += [f'tune.budget="{options["budget"]}"'] if options["budget"] else []
        # TVM's schedules come first; then both providers are compared where the recipe leaves the choice.
        assignments += [f'kernels.{name}="tvm"' for name in self._open_operators(options, names)]
        status = super().build({**options, "set": [*options["set"], *assignments]}, names)
        return status if status != EXIT_GOOD or options["dry_run"] else self._search(options, assignments, names[0], device)

    def _device(self, options: dict[str, Any], names: list[str]) -> Device | None:
        """Where candidates are measured, checked before anything is built; None for this machine."""
        session = self.open_session(options, names)
        executor = session.workspace.executor
        if not executor.tracker or names[0] not in session.loaded:
            return None
        target = session.loaded[names[0]].values["target"]
        if target["kind"] != "cpu":
            raise UserError(f"{names[0]}: candidates for a GPU are measured where it is, not through a tracker; set "
                            "MODELBUILD_TRACKER=off")  # fmt: skip
        if target["arch"] == "native":
            raise UserError(f'{names[0]}: [target] arch = "native" is this machine\'s CPU, not that of the tracker\'s devices; '
                            'name theirs, e.g. --set target.arch="x86-64-v3"')  # fmt: skip
        device = Device(executor.tracker, executor.tracker_key or target["arch"])
        if not options["dry_run"]:
            require_server(device)
        return device

    def _open_operators(self, options: dict[str, Any], names: list[str]) -> list[str]:
        """The operator classes whose provider tuning chooses."""
        session = self.open_session(options, names)
        if names[0] not in session.loaded:
            return []
        offload = _offload(session.node(names[0], "optimize").spec)
        return [name for name in ("conv2d", "matmul") if offload.get(name) == "auto"]

    def _search(self, options: dict[str, Any], assignments: list[str], recipe: str, device: Device | None) -> int:
        session = self.open_session({**options, "set": [*options["set"], *assignments, 'tune.on_miss="tune"']}, [recipe])
        session.examine(recipe, "optimize")
        records = session.loaded[recipe].records
        if records is None:
            raise UserError(f'{recipe} names no records file; add [tune] records = "recipes/tuning/{recipe}.json"')
        path = session.workspace.root / records
        with session.store.in_use(), session.store.scratch() as folder:
            result = _run(session, recipe, path, folder, options["fresh"], device)
            if result["status"] != "built":
                raise StageError(f"tune failed: {result['reason']}")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / "out" / "records.json", path)
        measured = result["measurements"]
        if self._open_operators(options, [recipe]):
            if device is None:
                self._compare_providers(options, recipe, path)
            else:
                sys.stdout.write(f"{recipe}: oneDNN is not measured through a tracker; choices of providers stay as they are\n")
        sys.stdout.write(f"{recipe}: {measured['records']} of {measured['tasks']} kernels have records in {records}\n")
        return EXIT_GOOD if measured["records"] else EXIT_FAILED

    def _compare_providers(self, options: dict[str, Any], recipe: str, records: Path) -> None:
        session = self.open_session(options, [recipe])
        session.examine(recipe, "import")
        with session.store.in_use(), session.store.scratch() as folder:
            result = _run_providers(session, recipe, records, folder)
            if result["status"] != "built":
                raise StageError(f"tune failed: {result['reason']}")
            shutil.copyfile(folder / "out" / "records.json", records)
        measured = result["measurements"]
        sys.stdout.write(f"{recipe}: oneDNN computes {measured['onednn']} of {measured['compared']} distinct operators\n")


def _offload(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of OffloadOneDnn in an order."""
    uses = (use for use in spec["passes"] if not isinstance(use, str) and use["name"] == "OffloadOneDnn")
    return next(uses, {})


def _run_providers(session: Session, recipe: str, records: Path, folder: Path) -> dict[str, Any]:
    node = session.node(recipe, "optimize")
    inputs = {**session.builder.lay_out(node, folder / "inputs"), "records": records}
    (folder / "out").mkdir()
    spec = {"passes": node.spec["passes"], "target": node.spec["target"]}
    job = process.make_job("providers", spec, inputs, folder / "out", session.workspace.root)
    return _measured(session, recipe, job, folder)


def _run(session: Session, recipe: str, records: Path, folder: Path, fresh: bool, device: Device | None) -> dict[str, Any]:
    node = session.node(recipe, "tune")
    inputs = session.builder.lay_out(node, folder / "inputs")
    inputs.pop("records", None)
    checkpoint = session.workspace.state / "tuning" / (f"{recipe}.json" if device is None else f"{recipe} on {device.key}.json")
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    if fresh:
        checkpoint.unlink(missing_ok=True)
    elif records.is_file():
        inputs["records"] = records
    (folder / "out").mkdir()
    spec = {key: node.spec[key] for key in ("trials", "budget_seconds", "target")} | {"checkpoint": str(checkpoint)}
    spec |= {} if device is None else {"tracker": device.tracker, "tracker_key": device.key}
    job = process.make_job("search", spec, inputs, folder / "out", session.workspace.root)
    return _measured(session, recipe, job, folder, is_here=device is None)


def _measured(session: Session, recipe: str, job: dict[str, Any], folder: Path, is_here: bool = True) -> dict[str, Any]:
    """Run a worker that measures, alone on the machine where `is_here`, and show how it gets on."""
    console, shown = Console(), [""]

    def tick(seconds: float, text: str) -> None:
        console.running(recipe, "search", seconds, text)
        if text and text != shown[0]:
            shown[0] = text
            console.note(f"{recipe}: {text}")

    log = session.workspace.state / "logs" / recipe / "search.log"
    process.reset()
    waiting = "waiting to measure alone" if is_here else "waiting for a measurement on this machine"
    turn = machine.measuring if is_here else machine.working
    with turn(lambda seconds: tick(seconds, waiting)):
        return process.run_worker(job, folder, log, tick).result
