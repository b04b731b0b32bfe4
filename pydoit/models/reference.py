"""The reference of a language model: transformers in float32 on the checkpoint's own weights."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.models.checkpoint import config_values, open_checkpoint
from pydoit.models.config import decoder_config
from pydoit.models.parameters import checkpoint_shapes

if TYPE_CHECKING:
    import torch

    from pydoit.models.spec import LanguageSpec


class Reference:
    """A transformers causal language model; `dtype` is torch's name of its element type."""

    def __init__(self, spec: LanguageSpec, folder: Path, config: Path | None, dtype: str = "float32") -> None:
        import torch

        self.device = "cuda" if spec.target.kind == "cuda" and torch.cuda.is_available() else "cpu"
        self.model: Any = load_model(spec.source, spec.weight_seed, folder, config).to(self.device)
        self.round_to(dtype)

    def round_to(self, dtype: str) -> None:
        """Compute in another element type; rotary frequencies stay in float32, as transformers loads them."""
        import torch

        for parameter in self.model.parameters():
            parameter.data = parameter.data.to(getattr(torch, dtype))

    def logits(self, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
        """float32 [tokens, vocabulary] for one sequence."""
        import torch

        with torch.inference_mode():
            given = torch.from_numpy(tokens.astype(np.int64))[None].to(self.device)
            return np.asarray(self.model(input_ids=given, use_cache=False).logits[0].float().cpu().numpy())

    def greedy(self, tokens: NDArray[np.int32], count: int) -> list[int]:
        """The `count` likeliest next tokens, one after the other; the end of a text does not end it."""
        import torch

        with torch.inference_mode():
            given = torch.from_numpy(tokens.astype(np.int64))[None].to(self.device)
            past, chosen = None, []
            for _ in range(count):
                result = self.model(input_ids=given, past_key_values=past, use_cache=True)
                past = result.past_key_values
                given = result.logits[:, -1].argmax(-1)[None]
                chosen.append(int(given))
        return chosen


def load_model(source: str, seed: int | None, folder: Path, config: Path | None) -> torch.nn.Module:
    """The checkpoint's model in float32 on the CPU, its weights seeded ones where a seed is given."""
    import torch
    import transformers

    values = dict(config_values(source, folder, config))
    kind = str(values.pop("model_type"))
    for key in ("torch_dtype", "dtype", "transformers_version", "architectures", "quantization_config"):
        values.pop(key, None)
    try:
        settings = transformers.AutoConfig.for_model(kind, **values)
    except Exception as error:  # whatever its validators raise
        raise UserError(f"model.config: transformers refuses it ({' '.join(str(error).split())}); correct it") from error
    with torch.device("meta"):
        model: Any = transformers.AutoModelForCausalLM.from_config(settings, attn_implementation="eager")
    decoder = decoder_config({"model_type": kind, **values})
    checkpoint = open_checkpoint(source, folder, seed, decoder)
    names = list(checkpoint_shapes(decoder))
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as pool:
        arrays = list(pool.map(checkpoint.read, names))
    state = {name: torch.from_numpy(np.array(array)) for name, array in zip(names, arrays, strict=True)}
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    _materialize_buffers(model, settings)
    return model.eval()


def _materialize_buffers(model: Any, settings: Any) -> None:
    """Rotary frequencies are computed when a module is made; on the meta device they have no values."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if any(buffer.is_meta for buffer in child.buffers(recurse=False)):
                setattr(module, name, type(child)(config=settings))
    lacking = [name for name, tensor in (*model.named_parameters(), *model.named_buffers()) if tensor.is_meta]
    if lacking:
        raise RuntimeError(f"the reference has no values for {', '.join(lacking[:5])}")
