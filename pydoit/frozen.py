"""The base of every typed, immutable value that crosses a stage's border."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A pydantic model that rejects unknown keys and cannot be changed after it was made."""

    model_config = ConfigDict(frozen=True, extra="forbid")
