"""Tuning records: the checked-in file of measured schedule decisions, one line for each kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pydoit.errors import UserError
from pydoit.frozen import Frozen
from pydoit.keys import parse_json


class Record(Frozen):
    """The best measured decisions for one kernel."""

    task: str
    """Readable name, no part of the identity."""
    key: str
    """sha256 of the function's normalized TIR."""
    decisions: dict[str, Any]
    """Parameters of the schedule, as `pydoit.kernels.tile.Tile` takes them."""
    microseconds: float
    """Measured time with these decisions."""
    default_microseconds: float
    """Measured time of the default schedule in the same run."""


class TuningTarget(Frozen):
    """Where the records were measured; they apply to this arch alone."""

    arch: str
    """LLVM's name of the CPU."""
    threads: int = 0
    """Threads of the measurement, for readers."""
    device: str = ""
    """Name of the GPU, its driver and clocks, for readers."""


class Records(Frozen):
    """A records file."""

    schema_: int = 1
    """Version of the format (`schema` in the file)."""
    target: TuningTarget
    """What the records were measured for."""
    records: tuple[Record, ...] = ()
    """One for each kernel, sorted by task and key."""

    def decisions(self, arch: str) -> dict[str, dict[str, Any]]:
        """Return key -> decisions when the records are for `arch`, nothing otherwise."""
        if self.target.arch != arch:
            return {}
        return {record.key: record.decisions for record in self.records}

    def to_text(self) -> str:
        """Return the file's text: sorted, a record a line, so that a change of one kernel is a diff of one line."""
        ordered = sorted(self.records, key=lambda record: (record.task, record.key))
        lines = ",\n".join(json.dumps(record.model_dump(), sort_keys=True) for record in ordered)
        target = json.dumps(self.target.model_dump(exclude={"device"} if not self.target.device else None), sort_keys=True)
        return f'{{"schema": {self.schema_}, "target": {target}, "records": [\n{lines}\n]}}\n'


def read_records(path: Path) -> Records:
    """Read a records file; raises UserError when it is damaged or of another schema."""
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
        if document.pop("schema", None) != 1:
            raise UserError(f"{path.name}: the schema of these tuning records is not 1; tune again with this version")
        return Records.model_validate(document)
    except (ValueError, AttributeError, TypeError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path.name}: not a file of tuning records ({reason}); restore it or tune again") from error
