"""What an importer cannot translate, as data: every operator at once, where it stands, and what to try."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydoit.errors import UserError


@dataclass(frozen=True)
class Unsupported:
    """An operator without translation."""

    operator: str
    """Its name in the original framework."""
    count: int
    """How often the model uses it."""
    where: str
    """The first use: the node, the module of the model, and the user's source line, as far as known."""
    hint: str
    """What to try."""


def error_of(items: Iterable[Unsupported]) -> UserError:
    """One error for all of them."""
    listed = "; ".join(f"{item.operator} ({item.count}){_at(item.where)}: {item.hint}" for item in items)
    return UserError(f"model: these operators cannot be imported: {listed}")


def _at(where: str) -> str:
    return f" at {where}" if where else ""
