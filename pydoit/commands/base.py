"""What all commands share: the original arguments, options in any place, errors as lines and exit statuses."""

from __future__ import annotations

import getopt
import io
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from doit.cmd_base import Command
from doit.exceptions import InvalidCommand, InvalidDodoFile, InvalidTask

from pydoit.errors import ModelBuildError, UserError
from pydoit.nearest import nearest

EXIT_GOOD, EXIT_FAILED, EXIT_WRONG, EXIT_INTERRUPTED = 0, 1, 2, 130

TRACEBACK = {"name": "traceback", "long": "traceback", "short": "", "type": bool, "default": False,
             "help": "show where in the code an error arose"}  # fmt: skip
SET = {"name": "set", "long": "set", "short": "", "type": list, "default": [],
       "help": "override a recipe's value: --set section.key=value (repeatable)"}  # fmt: skip
FORMAT = {"name": "format", "long": "format", "short": "", "type": str, "default": "table",
          "choices": [("table", "for people"), ("json", "one JSON document")], "help": "form of the output"}  # fmt: skip


class ModelbuildCommand(Command):  # type: ignore[misc]
    """A command of ours; subclasses define `run(options, arguments) -> exit status`."""

    cmd_options: tuple[dict[str, Any], ...] = (TRACEBACK,)

    def __init__(self, task_loader: Any = None, cmds: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        """The command itself."""
        raise AssertionError("a command defines run()")

    def parse_execute(self, in_args: list[str]) -> int:
        """Parse the original arguments and run; every error ends as a line on stderr and an exit status."""
        return guarded(lambda: self._parse_and_run(in_args), in_args)

    def _parse_and_run(self, in_args: list[str]) -> int:
        return parse_and_run(self, in_args, self.run)


def guarded(run: Callable[[], int | None], in_args: list[str]) -> int:
    """Run a command; what it raises becomes a message and an exit status of the contract."""
    _prepare_streams()
    show_traceback = "--traceback" in sys.argv or "--traceback" in in_args or bool(os.environ.get("MODELBUILD_TRACEBACK"))
    try:
        return run() or EXIT_GOOD
    except ModelBuildError as error:
        if show_traceback:
            traceback.print_exc()
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    except (InvalidCommand, InvalidDodoFile, InvalidTask) as error:
        sys.stderr.write(f"{_plain(error)}\n")
        return EXIT_WRONG
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        discard_output()  # the reader is gone; nothing more can be shown
        return EXIT_GOOD
    except Exception:  # noqa: BLE001 - a fault of ours: all of it is shown, and the status is one of the contract
        traceback.print_exc()
        return EXIT_FAILED


def discard_output() -> None:
    """What stdout still holds, and all that follows, goes nowhere: it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_streams() -> None:
    """A stream that is closed, or an encoding without a letter, does not stop a command."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for the process's life
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="surrogateescape" if name == "stdin" else "replace")


def _plain(error: Exception) -> str:
    return " ".join(str(error).split())


def original_arguments(name: str, in_args: list[str]) -> list[str]:
    """The arguments as the user wrote them: doit drops every `a=b` before a command sees them.

    They are taken from sys.argv when what doit passes on is what it makes of them, else `in_args` stands.
    """
    written = sys.argv[1:]
    for position, word in enumerate(written):
        if word == name:
            rest = written[position + 1 :]
            if [item for item in rest if item and (item.startswith("-") or "=" not in item)] == list(in_args):
                return rest
    return list(in_args)


def parse_and_run(command: Any, in_args: list[str], run: Callable[[dict[str, Any], list[str]], int]) -> int:
    """Give the original options and arguments to `run`, or show the command's help when that is asked for."""
    written = original_arguments(command.name, in_args)
    if "-h" in written or "--help" in written:
        sys.stdout.write(f"{command.help()}\n")
        return EXIT_GOOD
    options, arguments = parse(command.cmdparser, written)
    return run(options, arguments)


def parse(parser: Any, arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Options anywhere between the arguments; `UserError` with the nearest option for an unknown one."""
    values: dict[str, Any] = {option.name: option.default for option in parser.options}
    values |= {option.name: list(option.default or []) for option in parser.options if option.type is list}
    try:
        found, rest = getopt.gnu_getopt(arguments, parser.get_short(), parser.get_long())
    except getopt.GetoptError as error:
        known = [f"--{option.long}" for option in parser.options if option.long]
        if f"--{error.opt}" in known:  # it lacks its value, or has one too many
            raise UserError(f"{error.msg}; see `doit help`") from None
        raise UserError(f"{error.msg}; {nearest(f'--{error.opt}', known)}") from None
    for text, value in found:
        option, inverse = parser.get_option(text)
        if option.type is bool:
            values[option.name] = not inverse
        elif option.type is list:
            values[option.name].append(value)
        else:
            values[option.name] = _convert(option, text, value)
    return values, rest


def _convert(option: Any, text: str, value: str) -> Any:
    try:
        converted = option.type(value)
    except ValueError:
        raise UserError(f"{text} {value}: not {option.type.__name__}; correct the value") from None
    if option.choices and value not in dict(option.choices):
        raise UserError(f"{text} {value}: unknown; {nearest(value, list(dict(option.choices)))}")
    return converted
