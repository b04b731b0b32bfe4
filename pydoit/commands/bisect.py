"""doit bisect RECIPE: the pass, function, kernel or tuning record that turns a good result bad."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from pydoit import passes, process
from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD, FORMAT, SET, TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.nearest import nearest
from pydoit.workspace import open_workspace

CHECK = {"name": "check", "long": "check", "short": "", "type": str, "default": "",
         "help": "a command; 0 is good. It has MODELBUILD_LIBRARY, _WEIGHTS, _SPEC and _RECORDS"}  # fmt: skip
METRIC = {"name": "metric", "long": "metric", "short": "", "type": str, "default": "",
          "help": "a number of the report, e.g. verify.max_abs or profile.latency_ms.median"}  # fmt: skip
MAX = {"name": "max", "long": "max", "short": "", "type": float, "default": None, "help": "with --metric: bad above it"}
MIN = {"name": "min", "long": "min", "short": "", "type": float, "default": None, "help": "with --metric: bad below it"}
REGRESS = {"name": "max_regress", "long": "max-regress", "short": "", "type": str, "default": "",
           "help": "with --metric profile.latency_ms.median: slower than the good order by more, e.g. 5%"}  # fmt: skip
GOOD = {"name": "good", "long": "good", "short": "", "type": str, "default": "",
        "help": "a preset or RECIPE@VARIANT whose order is good; without it no pass is (with --max-regress: O2)"}  # fmt: skip
NAN = {"name": "nan", "long": "nan", "short": "", "type": bool, "default": False,
       "help": "what makes NaN or infinity; the same as --metric verify.not_finite --max 0"}  # fmt: skip


class Bisect(ModelbuildCommand):
    name = "bisect"
    doc_purpose = "find the pass, function, kernel or tuning record that turns a good result bad"
    doc_usage = "RECIPE[@VARIANT]"
    cmd_options = (CHECK, METRIC, MAX, MIN, REGRESS, GOOD, NAN, SET, FORMAT, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        from pydoit.experiments.bisection import bisect
        from pydoit.experiments.lab import Lab

        if len(arguments) != 1:
            raise UserError("doit bisect takes one recipe; write `doit bisect RECIPE --metric verify.max_abs --max 1e-3`")
        _check_options(options)
        workspace = open_workspace()
        workspace.make_state()
        process.reset()
        lab = Lab(workspace, arguments[0], tuple(options["set"]))
        session = lab.open()
        if lab.setting().language:
            raise UserError("doit bisect does not go with language models yet; look at their verify stage")
        with session.store.in_use():
            good = _good_order(lab, options)
            found = bisect(lab, _judge(lab, options, good), good, _records(session, arguments[0]))
        document = {"schema": 1, "experiment": "bisect", **asdict(found)}
        lab.save("bisect.json", document)
        sys.stdout.write(json.dumps(document, indent=2) + "\n" if options["format"] == "json" else found.text())
        return EXIT_GOOD if found.what == "nothing" else EXIT_FAILED


def _check_options(options: dict[str, Any]) -> None:
    chosen = [bool(options[name]) for name in ("check", "metric", "nan")]
    if sum(chosen) != 1:
        raise UserError("doit bisect takes one of --check, --metric and --nan; choose what is bad")
    bounds = [options["max"] is not None, options["min"] is not None, bool(options["max_regress"])]
    if options["metric"] and sum(bounds) != 1:
        raise UserError("--metric takes one of --max, --min and --max-regress; give the bound")
    if options["metric"] and options["metric"].partition(".")[0] not in ("verify", "profile"):
        raise UserError(f"--metric {options['metric']}: must begin with verify. or profile.; see doit report --format json")
    if options["max_regress"] and not options["metric"].startswith("profile.latency_ms"):
        raise UserError("--max-regress compares latencies; write --metric profile.latency_ms.median")
    if options["max_regress"]:
        _fraction(options["max_regress"])


def _judge(lab: Any, options: dict[str, Any], good: Any) -> Any:
    from pydoit.experiments.judges import CommandJudge, FiniteJudge, MetricJudge, SlowerJudge
    from pydoit.experiments.lab import usable

    if options["nan"]:
        return FiniteJudge()
    if options["check"]:
        return CommandJudge(options["check"], lab.workspace.root)
    if options["max_regress"]:
        return SlowerJudge(lab, usable(lab.build("the good order", good)), _fraction(options["max_regress"]))
    return MetricJudge(options["metric"], options["max"], options["min"])


def _good_order(lab: Any, options: dict[str, Any]) -> Any:
    name = options["good"] or ("O2" if options["max_regress"] else "")
    if not name:
        return None
    if name in passes.PRESETS:
        return tuple(passes.PRESETS[name])
    from pydoit.experiments.lab import Lab

    if name.partition("@")[0] not in lab.workspace.recipe_files:
        raise UserError(f"--good {name}: there is no such preset or recipe; {nearest(name, list(passes.PRESETS))}")
    return Lab(lab.workspace, name).order()


def _records(session: Any, recipe: str) -> Any:
    """The recipe's records file, where it has one that this target may use."""
    named = session.loaded[recipe].records
    path = session.workspace.root / named if named else None
    return json.loads(path.read_bytes()) if path is not None and path.is_file() else None


def _fraction(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        raise UserError(f"--max-regress {text}: not a number; write 5% or 0.05") from None
    if not 0 <= value < 100:
        raise UserError(f"--max-regress {text}: must be 0 or more; write 5% or 0.05")
    return value
