"""doit's own list, info, clean and forget: over our tasks inside a workspace, as they were everywhere else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from doit.cmd_base import DoitCmdBase
from doit.cmd_clean import Clean as DoitClean
from doit.cmd_forget import Forget as DoitForget
from doit.cmd_info import Info as DoitInfo
from doit.cmd_list import List as DoitList

from pydoit.commands.base import EXIT_FAILED, guarded, parse_and_run
from pydoit.errors import UserError
from pydoit.loader import ModelbuildLoader
from pydoit.workspace import find_root


def is_ours(loader: Any) -> bool:
    """Whether tasks come from recipes: a workspace is around, no dodo.py is here and none was asked for."""
    if isinstance(loader, ModelbuildLoader):
        return True
    asked = {"-f", "--file", "-d", "--dir", "-k", "--seek-file"}
    if any(word.partition("=")[0] in asked for word in sys.argv[1:]):
        return False
    return not Path("dodo.py").exists() and find_root(Path.cwd().resolve()) is not None


class _Standard(DoitCmdBase):  # type: ignore[misc]
    """Mixed into a command of doit: picks the loader, and maps errors and exit statuses of our tasks."""

    def __init__(self, task_loader: Any, **kwargs: Any) -> None:
        self._ours = is_ours(task_loader)
        loader = task_loader if not self._ours or isinstance(task_loader, ModelbuildLoader) else ModelbuildLoader()
        super().__init__(task_loader=loader, **kwargs)

    def parse_execute(self, in_args: list[str]) -> Any:
        if not self._ours:
            return super().parse_execute(in_args)
        return guarded(lambda: parse_and_run(self, in_args, self._on_recipes), in_args)

    def _on_recipes(self, options: dict[str, Any], names: list[str]) -> int:
        if any(not name for name in names):
            raise UserError("an empty name is no task; see `doit list`")
        self.loader.names_only = self.name == "list" and not options["status"]
        parameters, _ = self.cmdparser.parse([])
        parameters.update(options)
        parameters.update({key: value for key, value in self.loader.load_doit_config().items() if key != "default_tasks"})
        return EXIT_FAILED if self.execute(parameters, names) else 0


class List(_Standard, DoitList):  # type: ignore[misc]
    name = "list"
    doc_purpose = "list tasks: recipes in a workspace, else those of the dodo file"


class Info(_Standard, DoitInfo):  # type: ignore[misc]
    name = "info"

    def _execute(self, pos_args: list[str], hide_status: bool = False) -> Any:
        names = {task.name for task in self.task_list}
        if self._ours and len(pos_args) == 1 and pos_args[0] not in names:
            raise UserError(f"there is no task {pos_args[0]!r}; see `doit list --all`")
        result = super()._execute(pos_args, hide_status)
        return 0 if self._ours else result  # a task that is not up to date is no failure


class Clean(_Standard, DoitClean):  # type: ignore[misc]
    name = "clean"


class Forget(_Standard, DoitForget):  # type: ignore[misc]
    name = "forget"
