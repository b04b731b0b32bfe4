"""A model's own chat template (Jinja), run as transformers runs it, in a sandbox: it comes with a foreign file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from pydoit.errors import UserError


class ChatTemplate:
    """Turns messages into the text that the model was trained on."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], now: datetime | None = None) -> None:
        """`special_tokens` are visible to the template by name (bos_token, ...); `now` fixes the date it may print.

        Raises UserError if `source` is no valid template.
        """
        from jinja2 import TemplateError
        from jinja2.ext import Extension, loopcontrols
        from jinja2.nodes import Node
        from jinja2.parser import Parser
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        class Generation(Extension):
            """`{% generation %}` marks the answer for training; here its content is simply shown."""

            tags = {"generation"}

            def parse(self, parser: Parser) -> list[Node]:
                next(parser.stream)
                return parser.parse_statements(("name:endgeneration",), drop_needle=True)

        self._special_tokens, self._now = dict(special_tokens), now
        self._errors: tuple[type[Exception], ...] = (
            TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError, RecursionError,
        )  # fmt: skip
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": self._strftime_now}
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise UserError(f"the model's chat template is no valid Jinja template: {error}; use a raw prompt") from error

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any) -> str:
        """The text of `messages` ({"role": ..., "content": ...}); more `variables` are handed to the template.

        Raises UserError with the template's own words if it refuses the messages.
        """
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise UserError(f"a chat message is {message!r}; give {{'role': 'user', 'content': 'text'}}")
        given = {"tools": None, "documents": None, **self._special_tokens, **variables}
        try:
            return self._template.render(
                messages=[dict(message) for message in messages], add_generation_prompt=add_generation_prompt, **given
            )
        except self._errors as error:
            raise UserError(
                f"the model's chat template refuses these messages: {error}; change them or use a raw prompt"
            ) from error

    def _strftime_now(self, form: str) -> str:
        return (self._now or datetime.now().astimezone()).strftime(form)


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's own filter escapes HTML, which models have not seen."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
