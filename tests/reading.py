"""What RapidOCR's models are used for: the text of a picture, by detection, orientation and recognition of its lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image
from scipy import ndimage

Array = np.ndarray[Any, Any]
Network = Callable[[Array], Array]
IS_TEXT = 0.3
GROWTH = 0.6
"""How much of its height a detected box is enlarged on each side: the network marks the middle of a line."""
UPSIDE_DOWN = 0.9


def read_page(page: Image.Image, detect: Network, orient: Network, recognize: Network, characters: Sequence[str]) -> list[str]:
    """The lines of text from top to bottom; the networks take [1, 3, H, W] in -1..1 at their own sizes.

    detect(480x480) gives the probability of text for each pixel, orient(48x192) those of upright and upside down,
    recognize(48x640) those of `characters` for each position.
    """
    lines = []
    for box in _boxes(page, detect):
        line = page.crop(box)
        if orient(_signed(_padded(line, 48, 192))).reshape(-1)[1] > UPSIDE_DOWN:
            line = line.rotate(180)
        text = _decode(recognize(_signed(_padded(line, 48, 640)))[0], characters)
        if text.strip():
            lines.append(text)
    return lines


def _boxes(page: Image.Image, detect: Network) -> list[tuple[int, int, int, int]]:
    """(left, top, right, bottom) of each connected region of text, from top to bottom."""
    found = detect(_signed(page.resize((480, 480))))[0, 0] > IS_TEXT
    labels, _ = ndimage.label(ndimage.binary_dilation(found, iterations=1))
    boxes = []
    for rows, columns in ndimage.find_objects(labels):
        grown = round(GROWTH * (rows.stop - rows.start))
        corners = (columns.start - grown, rows.start - grown, columns.stop + grown, rows.stop + grown)
        left, top, right, bottom = (round(corner * page.size[axis % 2] / 480) for axis, corner in enumerate(corners))
        if bottom - top >= 6 and right - left >= 6:
            boxes.append((max(0, left), max(0, top), min(page.width, right), min(page.height, bottom)))
    return sorted(boxes, key=lambda box: (box[1] // 8, box[0]))


def _padded(line: Image.Image, height: int, width: int) -> Image.Image:
    """The line at that height, cut or filled with grey on its right."""
    scaled = line.resize((max(1, min(width, round(line.width * height / line.height))), height))
    canvas = Image.new("RGB", (width, height), (127, 127, 127))
    canvas.paste(scaled, (0, 0))
    return canvas


def _signed(picture: Image.Image) -> Array:
    pixels = np.asarray(picture.convert("RGB"), dtype=np.float32) / 127.5 - 1.0
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))[None]


def _decode(scores: Array, characters: Sequence[str]) -> str:
    """CTC: the best character at each position, repetitions and blanks (index 0) dropped."""
    best = scores.argmax(-1)
    kept = [index for position, index in enumerate(best) if index and (position == 0 or best[position - 1] != index)]
    return "".join(characters[index - 1] for index in kept)
