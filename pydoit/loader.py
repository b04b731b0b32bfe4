"""Gives doit's own commands our tasks: a task loader that needs no dodo.py."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from pathlib import Path
from typing import Any

from doit.cmd_base import TaskLoader2
from doit.doit_cmd import DoitMain
from doit.task import Task

from pydoit.console import Console
from pydoit.errors import UserError
from pydoit.session import Options, Session
from pydoit.tasks import make_tasks, name_tasks
from pydoit.workspace import all_addresses, open_workspace


def database_settings(session: Session) -> dict[str, Any]:
    """doit's settings: its database lies in the disposable state folder; sqlite3 survives two commands at once."""
    database = session.workspace.state / "doit.db"
    _drop_damaged(database)
    return {"dep_file": str(database), "backend": "sqlite3", "verbosity": 2}


def _drop_damaged(database: Path) -> None:
    """doit's database is disposable: one that cannot be read is removed instead of stopping every build."""
    if not database.is_file():
        return
    try:
        with contextlib.closing(sqlite3.connect(database, timeout=5)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            connection.execute("SELECT * FROM doit LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        return  # in use, or not yet filled
    except sqlite3.DatabaseError:
        database.unlink(missing_ok=True)


class ModelbuildLoader(TaskLoader2):  # type: ignore[misc]
    """Loads the recipes that the arguments name, or all; `loader = "modelbuild"` under [tool.doit] selects it."""

    cmd_options = ()

    def __init__(self, session: Session | None = None) -> None:
        super().__init__()
        self.names_only = False
        """Set by commands that show names and descriptions: recipes are read, but not checked."""
        self._session = session
        _let_empty_arguments_pass()

    @property
    def session(self) -> Session:
        if self._session is None:
            self._session = Session(open_workspace(), Options())
        return self._session

    def load_doit_config(self) -> dict[str, Any]:
        self.session.workspace.make_state()
        settings = database_settings(self.session)
        if self.session.workspace.settings.default:
            settings["default_tasks"] = list(self.session.workspace.settings.default)
        return settings

    def load_tasks(self, cmd: Any, pos_args: list[str]) -> list[Task]:
        """One group a recipe; a broken recipe is told on stderr unless it is the one that was asked for."""
        session = self.session
        named = [name.partition(":")[0] for name in pos_args if name and "*" not in name]
        if self.names_only:
            session.peek(named or self.addresses())
        else:
            session.open(named or self.addresses())
        for address, error in session.broken.items():
            if address in named:
                raise error if isinstance(error, UserError) else UserError(str(error))
            sys.stderr.write(f"{error}\n")
        return name_tasks(session.descriptions) if self.names_only else make_tasks(session, Console())

    def addresses(self) -> list[str]:
        """All recipes with their variants, by name."""
        return all_addresses(self.session.workspace)


def _let_empty_arguments_pass() -> None:
    """doit 0.37 looks at the first letter of every argument and fails on an empty one; our commands read sys.argv."""
    original = DoitMain.process_args
    if getattr(original, "takes_empty", False):
        return

    def process_args(main: Any, arguments: list[str]) -> Any:
        return original(main, [argument for argument in arguments if argument])

    process_args.takes_empty = True  # type: ignore[attr-defined]
    DoitMain.process_args = process_args
