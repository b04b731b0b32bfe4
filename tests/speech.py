"""What Silero VAD is used for: the times at which somebody speaks in a recording."""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Step = Callable[[Array, Array], tuple[Array, Array]]
"""(chunk [1, 576], state [2, 1, 128]) -> (probability [1, 1], next state)."""
RATE = 16000
CHUNK = 512
CONTEXT = 64
START = 0.5
END = 0.35
LEAST_SILENCE = 0.1
"""Seconds; a shorter pause does not end a segment."""


def read_recording(path: Path) -> Array:
    """A mono 16-bit file at 16 kHz as float32 in -1..1."""
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
    return samples.astype(np.float32) / 32768.0


def probabilities(step: Step, recording: Array) -> Array:
    """The probability of speech in each chunk of 512 samples."""
    state, context = np.zeros((2, 1, 128), np.float32), np.zeros(CONTEXT, np.float32)
    found = []
    for first in range(0, len(recording) - CHUNK + 1, CHUNK):
        chunk = np.concatenate([context, recording[first : first + CHUNK]])
        probability, state = step(chunk[None], state)
        context = chunk[-CONTEXT:]
        found.append(float(probability.reshape(-1)[0]))
    return np.array(found)


def segments(found: Array) -> list[tuple[float, float]]:
    """Seconds of start and end of each stretch of speech: it starts above START and ends after a pause below END."""
    result: list[tuple[float, float]] = []
    start: float | None = None
    silent: float | None = None
    for index, probability in enumerate(found):
        now = index * CHUNK / RATE
        if start is None:
            start = now if probability >= START else None
            continue
        if probability >= END:
            silent = None
            continue
        silent = now if silent is None else silent
        if now - silent >= LEAST_SILENCE:
            result.append((round(start, 3), round(silent, 3)))
            start = silent = None
    if start is not None:
        result.append((round(start, 3), round(len(found) * CHUNK / RATE, 3)))
    return result
