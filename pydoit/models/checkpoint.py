"""Checkpoints read tensor by tensor: sharded safetensors, GGUF, or values made from a seed and each tensor's name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.kernels.cpu.weight_format import Quantized
from pydoit.keys import parse_json
from pydoit.models.config import DecoderConfig, decoder_config, read_values
from pydoit.models.parameters import checkpoint_shapes, gguf_name

ALL = slice(None)
FLOATS = ("F32", "F16", "BF16", "F64")
"""Element types of safetensors that are weights as they are; others are quantized and lack their scales."""
SHOWN = 10
"""Names that a message lists."""


class Checkpoint(Protocol):
    """A source of tensors by the names of a transformers checkpoint."""

    def read(self, name: str, rows: slice = ALL) -> NDArray[np.float32]:
        """Rows of one tensor as float32."""

    def blocks(self, name: str, rows: slice = ALL) -> Quantized | None:
        """The tensor's own quantized blocks as a `Quantized`, or None where it has none that we keep."""


def find_gguf(folder: Path) -> Path:
    """The one GGUF file of a model's folder."""
    found = sorted(folder.glob("*.gguf"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise UserError(f"model.path: the model's folder has {names} with the suffix .gguf; name one GGUF file")
    return found[0]


def load_config(source: str, folder: Path, config: Path | None) -> DecoderConfig:
    """The decoder's config: the recipe's own file, the folder's config.json, or the metadata of its GGUF file."""
    return decoder_config(config_values(source, folder, config))


def config_values(source: str, folder: Path, config: Path | None) -> Mapping[str, Any]:
    """The same as transformers' values."""
    if config is None and source == "gguf":
        from pydoit.models.gguf_config import read_config
        from pydoit.models.gguf_file import GgufFile

        return read_config(GgufFile(find_gguf(folder)))
    path = folder / "config.json" if config is None else config
    if not path.is_file():
        raise UserError("model.path: there is no config.json in the model's folder; name one as model.config")
    return read_values(path)


def open_checkpoint(source: str, folder: Path, seed: int | None, config: DecoderConfig) -> Checkpoint:
    """The weights' source; raises UserError that lists tensors which are missing, unknown or of another shape."""
    if seed is not None:
        return RandomCheckpoint(seed, config)
    if source == "gguf":
        return GgufCheckpoint(find_gguf(folder), config)
    return SafetensorsCheckpoint(folder, config)


class RandomCheckpoint:
    """Seeded values, those that a transformers model gets from `pydoit.importers.random_weights.fill`."""

    def __init__(self, seed: int, config: DecoderConfig) -> None:
        self._seed = seed
        self._shapes = checkpoint_shapes(config)
        # A tied matrix has two names in a transformers model; the head's is the one that is filled last.
        self._tied = {"model.embed_tokens.weight": "lm_head.weight"} if config.tied else {}

    def read(self, name: str, rows: slice = ALL) -> NDArray[np.float32]:
        from pydoit.importers.random_weights import values

        own = self._tied.get(name, name)
        owner, _, leaf = own.rpartition(".")
        is_norm = "norm" in owner.rpartition(".")[2]
        start, stop, _ = rows.indices(self._shapes[name][0])
        shape = (stop - start, *self._shapes[name][1:])
        return values(self._seed, own, leaf, shape, is_norm, own == "model.embed_tokens.weight", start)

    def blocks(self, name: str, rows: slice = ALL) -> Quantized | None:
        return None


class SafetensorsCheckpoint:
    """A folder with model.safetensors, or shards and their index."""

    def __init__(self, folder: Path, config: DecoderConfig) -> None:
        from safetensors import SafetensorError, safe_open

        files = _shards(folder)
        self._files: dict[str, Any] = {}
        found: dict[str, tuple[int, ...]] = {}
        types: dict[str, str] = {}
        for path in files:
            try:
                opened: Any = safe_open(path, framework="numpy")
                for name in opened.keys():  # noqa: SIM118 - it is no mapping
                    own = name if name.startswith(("model.", "lm_head.")) else f"model.{name}"
                    if own in self._files:
                        raise UserError(f"model.path: {path.name} and {self._files[own][0].name} both hold {name}; remove one")
                    self._files[own] = (path, name)
                    part = opened.get_slice(name)
                    found[own] = tuple(part.get_shape())
                    types[own] = part.get_dtype()
            except (SafetensorError, OSError) as error:
                raise UserError(f"model.path: {path.name} is no whole safetensors file ({error}); fetch it again") from error
        expected = checkpoint_shapes(config)
        if config.tied:
            found.pop("lm_head.weight", None)
        _check({name: shape for name, shape in found.items() if not name.endswith("rotary_emb.inv_freq")}, expected)
        quantized = [f"{name} ({types[name]})" for name in expected if types[name] not in FLOATS]
        if quantized:
            raise UserError(f"model.path: {_listed(quantized)} are not of {', '.join(FLOATS)}; use the unquantized checkpoint")

    def read(self, name: str, rows: slice = ALL) -> NDArray[np.float32]:
        from pydoit.runtime.aligned import map_weights

        path, own = self._files[name]
        return np.asarray(map_weights(path)[own][rows], dtype=np.float32)

    def blocks(self, name: str, rows: slice = ALL) -> Quantized | None:
        return None


class GgufCheckpoint:
    """A GGUF file; rows of queries and keys are put back into the order of transformers."""

    def __init__(self, path: Path, config: DecoderConfig) -> None:
        from pydoit.models.gguf_config import is_permuted
        from pydoit.models.gguf_file import GgufFile

        self._file = GgufFile(path)
        permuted = is_permuted(config.architecture)
        self._heads = {"q_proj": config.heads, "k_proj": config.kv_heads} if permuted else {}
        expected = {gguf_name(name): shape for name, shape in checkpoint_shapes(config).items()}
        found = {name: tensor.shape for name, tensor in self._file.tensors.items() if name != "rope_freqs.weight"}
        _check(found, expected)

    def read(self, name: str, rows: slice = ALL) -> NDArray[np.float32]:
        tensor = self._file.tensor(gguf_name(name))
        return self._ordered(name, tensor.dequantize(rows.start, rows.stop), rows)

    def blocks(self, name: str, rows: slice = ALL) -> Quantized | None:
        """Q4_1, Q4_0 and Q8_0 as they are."""
        from pydoit.models.gguf_blocks import FIELD_TYPES

        tensor = self._file.tensor(gguf_name(name))
        if tensor.type not in FIELD_TYPES:
            return None
        fields = tensor.blocks(rows.start, rows.stop)
        minimum = None if fields.minimum is None else self._ordered(name, fields.minimum, rows)
        return Quantized(self._ordered(name, fields.values, rows), self._ordered(name, fields.scale, rows), minimum)

    def _ordered(self, name: str, values: NDArray[Any], rows: slice) -> NDArray[Any]:
        from pydoit.models.gguf_blocks import unpermute_rows

        heads = next((heads for key, heads in self._heads.items() if f".{key}." in name), 0)
        if heads and rows != ALL:
            raise ValueError(f"{name} is put into another order as a whole")
        return unpermute_rows(values, heads) if heads else values


def _shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            named: Mapping[str, str] = parse_json(index.read_text(encoding="utf-8"))["weight_map"]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"model.path: {index.name} is no index of shards ({error}); fetch it again") from error
        files = [folder / name for name in sorted(set(named.values()))]
        outside = [path.name for path in files if path.parent != folder]
        lacking = [path.name for path in files if not path.is_file()]
        if outside or lacking:
            raise UserError(f"model.path: {index.name} names {', '.join(outside + lacking)}, not in its folder; fetch it again")
        return files
    whole = folder / "model.safetensors"
    if whole.is_file():  # others beside it hold the same again under other names, or are adapters
        return [whole]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError('model.path: there is no *.safetensors in the model\'s folder; or set model.weights = "random:0"')
    return files


def _check(found: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]) -> None:
    faults = {
        "lacks": [name for name in expected if name not in found],
        "has unknown": [name for name in found if name not in expected],
        "has another shape for": [
            f"{name} ({list(found[name])}, not {list(shape)})"
            for name, shape in expected.items()
            if name in found and tuple(found[name]) != tuple(shape)
        ],
    }
    texts = [f"{what} {_listed(names)}" for what, names in faults.items() if names]
    if texts:
        raise UserError(f"model.path: the checkpoint {'; '.join(texts)}; use the config that belongs to it")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
