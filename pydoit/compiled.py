"""Opens a compiled model from stage outputs, before there is an artifact folder: verify and profile run it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydoit.runtime import Model


def open_model(inputs: Mapping[str, Path], threads: int) -> Model:
    """The compiled model from the outputs of compile, weights and optimize."""
    from pydoit.runtime import Model

    described = json.loads((inputs["optimize"] / "spec.json").read_bytes())
    return Model(
        inputs["compile"] / "lib.so",
        inputs["weights"] / "model.safetensors",
        described["inputs"],
        described["outputs"],
        described["weights"],
        dims=described["dims"],
        entry=described["entry"],
        threads=threads,
    )
