"""The inputs of the checked-in recipes: shapes, distinct samples, and the preprocessing that the models expect."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def inputs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("recipes.datasets")


@pytest.mark.parametrize(
    ("function", "shape", "low", "high"),
    [
        ("efficientnet_pictures", (1, 3, 224, 224), -127 / 128, 1.0),
        ("imagenet_pictures", (1, 3, 224, 224), -2.2, 2.7),
        ("opennsfw_pictures", (1, 224, 224, 3), -123.0, 151.0),
    ],
)
def test_pictures(inputs: Any, function: str, shape: tuple[int, ...], low: float, high: float) -> None:
    samples = getattr(inputs, function)({"image": {"shape": list(shape), "dtype": "float32"}}, 10, 0, ROOT)
    arrays = [sample["image"] for sample in samples]
    assert all(array.shape == shape and array.dtype == np.float32 for array in arrays)
    assert min(float(array.min()) for array in arrays) >= low
    assert max(float(array.max()) for array in arrays) <= high
    assert all(float(array.std()) > 0.01 for array in arrays)
    assert len({array.tobytes() for array in arrays}) == 10


def test_opennsfw_takes_blue_first(inputs: Any) -> None:
    from PIL import Image

    red = inputs._through_jpeg(Image.new("RGB", (300, 200), (255, 0, 0)))[0, 100, 100]
    # JPEG of a plain colour: some steps of 255 off
    np.testing.assert_allclose(red, np.array([0, 0, 255]) - np.array([104, 117, 123]), atol=3)


def test_sentences_are_padded_to_the_declared_length(inputs: Any, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = sorted({word for sentence in inputs.SENTENCES for word in sentence.replace(".", " .").split()})
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, **{word: i for i, word in enumerate(words, 1)}}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    declared = {name: {"shape": [1, 24], "dtype": "int64"} for name in ("input_ids", "attention_mask")}
    samples = inputs.sentences(declared, 8, 0, tmp_path)
    assert all(sample["input_ids"].shape == (1, 24) for sample in samples)
    assert len({sample["input_ids"].tobytes() for sample in samples}) == 8
    first = samples[0]["attention_mask"][0]
    assert first.sum() == len(inputs.SENTENCES[0].replace(".", " .").split())
