"""doit passes: list, document, draw, check, compare, ablate and search the passes of [passes]."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pydoit import passes
from pydoit.commands.base import EXIT_GOOD, EXIT_WRONG, FORMAT, SET, TRACEBACK, ModelbuildCommand
from pydoit.errors import UserError
from pydoit.nearest import nearest

GRAPH = {"name": "graph", "long": "graph", "short": "", "type": bool, "default": False,
         "help": "draw which pass needs which: DOT on stdout"}  # fmt: skip
OUTPUT = {"name": "output", "long": "output", "short": "o", "type": str, "default": "",
          "help": "with --graph: a file to write, .dot or .svg"}  # fmt: skip
FIX = {"name": "fix", "long": "fix", "short": "", "type": bool, "default": False,
       "help": "with check: write the smallest change that makes the order legal into the recipe"}  # fmt: skip
ROUNDS = {"name": "rounds", "long": "rounds", "short": "", "type": int, "default": 40,
          "help": "with ablate and search: interleaved samples of each library"}  # fmt: skip
BUDGET = {"name": "budget", "long": "budget", "short": "", "type": str, "default": "10m",
          "help": "with search: time to spend, e.g. 90s, 10m or 1h"}  # fmt: skip
SEED = {"name": "seed", "long": "seed", "short": "", "type": int, "default": 0, "help": "with search: seed of the choices"}
FRESH = {"name": "fresh", "long": "fresh", "short": "", "type": bool, "default": False,
         "help": "with search: forget what an earlier search has found"}  # fmt: skip
TRIALS = {"name": "trials", "long": "trials", "short": "", "type": int, "default": 0,
          "help": "with search: schedules measured for each kernel without a record, alike for all orders"}  # fmt: skip

_ON_RECIPES = ("check", "diff", "ablate", "search")


class Passes(ModelbuildCommand):
    name = "passes"
    doc_purpose = "list the passes of [passes]; check, explain, ablate or search a recipe's order"
    doc_usage = "[PASS|PRESET | check RECIPE | diff RECIPE PASS | ablate RECIPE | search RECIPE]"
    cmd_options = (GRAPH, OUTPUT, FIX, ROUNDS, BUDGET, SEED, FRESH, TRIALS, SET, FORMAT, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        if options["graph"]:
            return _draw(options["output"])
        if arguments and arguments[0] in _ON_RECIPES:
            wanted = 2 if arguments[0] == "diff" else 1
            if len(arguments) != wanted + 1:
                raise UserError(f"doit passes {arguments[0]} takes a recipe{' and a pass' * (wanted - 1)}")
            return _RUN[arguments[0]](options, *arguments[1:])
        if len(arguments) > 1:
            raise UserError("doit passes takes one name; remove the others")
        return _show(arguments[0]) if arguments else _list(options["format"])


def _list(form: str) -> int:
    known = passes.all_passes()
    if form == "json":
        rows = [{"name": name, "summary": info.summary, **_declared(info)} for name, info in sorted(known.items())]
        sys.stdout.write(json.dumps({"schema": 1, "passes": rows, "presets": list(passes.PRESETS)}, indent=2) + "\n")
        return EXIT_GOOD
    width = max(map(len, known))
    for name, info in sorted(known.items()):
        sys.stdout.write(f"{name:<{width}}  {info.summary}\n")
    sys.stdout.write(f"presets: {', '.join(passes.PRESETS)}\n")
    return EXIT_GOOD


def _declared(info: passes.PassInfo) -> dict[str, Any]:
    return {
        "requires": sorted(info.requires), "provides": sorted(info.provides), "invalidates": sorted(info.invalidates),
        "before": dict(info.before), "after": dict(info.after), "targets": list(info.targets), "options": dict(info.options),
        "idempotent": info.idempotent, "exact": info.exact, "factory": info.factory, "package": info.package,
    }  # fmt: skip


def _show(name: str) -> int:
    info = passes.find_pass(name)
    if name in passes.PRESETS:
        for use in passes.PRESETS[name]:
            chosen, options = passes.split_use(use)
            sys.stdout.write(f"{chosen}{f'  {options}' if options else ''}\n")
        return EXIT_GOOD
    if info is None:
        known = [*passes.PRESETS, *passes.all_passes()]
        raise UserError(f"there is no pass or preset {name!r}; {nearest(name, known)}")
    from pydoit.passes.document import pass_facts

    sys.stdout.write(f"{name}: {info.summary}\n")
    for label, text in pass_facts(info):
        sys.stdout.write(f"  {label + ':':<9} {text}\n")
    return EXIT_GOOD


def _draw(output: str) -> int:
    from pydoit.passes import document

    if not output:
        sys.stdout.write(document.dot())
        return EXIT_GOOD
    path = Path(output)
    writers = {".dot": document.dot, ".gv": document.dot, ".svg": document.svg}
    if path.suffix not in writers:
        raise UserError(f"--output {output}: must end in .dot or .svg")
    path.write_text(writers[path.suffix](), encoding="utf-8")
    return EXIT_GOOD


def _check(options: dict[str, Any], recipe: str) -> int:
    from pydoit.experiments.recipe_order import read_order, write_order
    from pydoit.workspace import open_workspace

    found = read_order(open_workspace(), recipe, options["set"])
    faults = passes.check_order(found.order, found.setting)
    for fault in faults:
        sys.stdout.write(f"{found.where(fault.index)}: {fault.text}\n")
    if not faults:
        sys.stdout.write(f"{recipe}: the order of {len(found.order)} passes is legal\n")
        return EXIT_GOOD
    repair = passes.repair_order(found.order, found.setting)
    sys.stdout.write(f"smallest change: {', '.join(repair.changes)}\n")
    if not options["fix"]:
        return EXIT_WRONG
    path = write_order(found, repair.order)
    sys.stdout.write(f"wrote {path}\n")
    return EXIT_GOOD


def _diff(options: dict[str, Any], recipe: str, name: str) -> int:
    from pydoit.experiments.difference import pass_difference

    lab = _lab(options, recipe)
    with _in_use(lab):
        text = pass_difference(lab, name)
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.syntax import Syntax

        Console().print(Syntax(text, "diff", background_color="default"))
    else:
        sys.stdout.write(text)
    return EXIT_GOOD


def _ablate(options: dict[str, Any], recipe: str) -> int:
    from pydoit.experiments.ablation import ablate, table, to_json

    lab = _timed_lab(options, recipe)
    with _in_use(lab):
        whole, rows = ablate(lab, options["rounds"])
    document = to_json(whole, rows)
    path = lab.save("ablation.json", document)
    sys.stdout.write(json.dumps(document, indent=2) + "\n" if options["format"] == "json" else table(recipe, whole, rows))
    lab.console.note(f"{recipe}: figures in {path}")
    return EXIT_GOOD


def _search(options: dict[str, Any], recipe: str) -> int:
    from pydoit.experiments.search import search, summary

    lab = _lab(options, recipe)
    with _in_use(lab):
        found = search(
            lab,
            seconds(options["budget"]),
            options["rounds"],
            options["seed"],
            fresh=options["fresh"],
            trials=options["trials"],
        )
    path = lab.save("search.json", found.to_json())
    sys.stdout.write(json.dumps(found.to_json(), indent=2) + "\n" if options["format"] == "json" else summary(found))
    lab.console.note(f"{recipe}: figures in {path}")
    return EXIT_GOOD


_RUN: dict[str, Callable[..., int]] = {"check": _check, "diff": _diff, "ablate": _ablate, "search": _search}


def seconds(text: str) -> float:
    """A duration such as 90s, 10m or 1.5h; raises UserError for anything else."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    try:
        value = float(text[:-1]) * units[text[-1:]]
    except (ValueError, KeyError):
        raise UserError(f"{text!r} is no duration; write 90s, 10m or 1h") from None
    if not 0 < value < float("inf"):
        raise UserError(f"{text!r} is no duration; write 90s, 10m or 1h")
    return value


def _lab(options: dict[str, Any], recipe: str) -> Any:
    from pydoit import process
    from pydoit.experiments.lab import Lab
    from pydoit.workspace import open_workspace

    if options["rounds"] < 5:
        raise UserError(f"--rounds {options['rounds']}: too few to say anything; at least 5")
    workspace = open_workspace()
    workspace.make_state()
    process.reset()
    return Lab(workspace, recipe, tuple(options["set"]))


def _timed_lab(options: dict[str, Any], recipe: str) -> Any:
    lab = _lab(options, recipe)
    if lab.setting().language:
        raise UserError(f"{recipe} is a language model; ablate and search go with other models so far")
    return lab


def _in_use(lab: Any) -> AbstractContextManager[Any]:
    session = lab.open()
    return session.store.in_use() if session is not None else nullcontext()


__all__: Sequence[str] = ("Passes", "seconds")
