"""Opens what `onednn_library.build` wrote, with the runtime alone: no compiler, no torch."""

from __future__ import annotations

import json
from pathlib import Path

from pydoit.runtime import Model


def load(folder: Path, threads: int = 2) -> Model:
    """The library that `build` wrote."""
    spec = json.loads((folder / "spec.json").read_text())
    dims = {size: {"min": 1, "max": 8} for item in spec["inputs"] for size in item["shape"] if isinstance(size, str)}
    return Model(
        folder / "lib.so", folder / "model.safetensors", spec["inputs"], spec["outputs"], spec["weights"], dims=dims,
        threads=threads,
    )  # fmt: skip
