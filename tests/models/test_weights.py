"""Parameters packed in parts equal those packed at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pydoit import weight_file
from pydoit.models import weights
from pydoit.models.checkpoint import open_checkpoint
from pydoit.models.config import decoder_config
from pydoit.models.spec import LanguageSpec
from pydoit.models.targets import make_operators
from tests.language import SMALL, language_spec, write_checkpoint

EXTENTS = {"vocab_size": 777, "hidden_size": 72, "intermediate_size": 300}
CUDA = {"kind": "cuda", "arch": "sm_90"}


@pytest.mark.parametrize("kept", [{}, {"scheme": "int8"}, {"scheme": "int4", "group_size": 32, "symmetric": False}], ids=str)
@pytest.mark.parametrize("seed", [None, 5])
def test_parts_on_cpus(kept: dict[str, Any], seed: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(language_spec(kept=kept), seed, tmp_path, monkeypatch)


def test_parts_on_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(language_spec(target=CUDA), 7, tmp_path, monkeypatch)


def compare(values: dict[str, Any], seed: int | None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(folder, "llama", **EXTENTS)
    config = decoder_config({"model_type": "llama", **SMALL, **EXTENTS})
    operators = make_operators(config, LanguageSpec.model_validate(values))
    checkpoint = open_checkpoint("transformers", folder, seed, config)
    described = weights.described_weights(config, operators)
    counts = []
    for size in (weights.PART_BYTES, 128 * 72 * 4):
        monkeypatch.setattr(weights, "PART_BYTES", size)
        pieces = list(weights.packed_weights(config, operators, checkpoint))
        counts.append(len(pieces))
        weight_file.stream(folder / f"{len(counts)}.bin", described, pieces)
    assert counts[1] > counts[0] == len(described)
    assert (folder / "1.bin").read_bytes() == (folder / "2.bin").read_bytes()


def test_random_rows_begin_anywhere() -> None:
    from pydoit.random_tensors import uniform

    whole = uniform(3, "a", (1024, 24), -1, 1)
    assert np.array_equal(whole[128:200], uniform(3, "a", (72, 24), -1, 1, skipped=128 * 24))
    with pytest.raises(ValueError, match="whole counters"):
        uniform(3, "a", (4,), -1, 1, skipped=3)


def test_pieces_that_do_not_fit(tmp_path: Path) -> None:
    described = [{"name": "a", "shape": [4, 2], "dtype": "float32"}]
    rows = np.ones((2, 2), np.float32)
    with pytest.raises(ValueError, match="never came whole"):
        weight_file.stream(tmp_path / "w", described, [weight_file.Piece("a", rows)])
    with pytest.raises(ValueError, match="from 3 on"):
        weight_file.stream(tmp_path / "w", described, [weight_file.Piece("a", rows, 3)])
