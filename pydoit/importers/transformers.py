"""transformers models: a folder with config.json and safetensors, or a config alone with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import nn

from pydoit.errors import UserError
from pydoit.importers import torch as torch_importer
from pydoit.importers.import_report import Unsupported
from pydoit.importers.imported import Imported
from pydoit.importers.spec import ModelSpec
from pydoit.objects import did_you_mean

if TYPE_CHECKING:
    from pydoit.importers import Reference


def build(spec: ModelSpec, folder: Path) -> nn.Module:
    """The model of `auto_class` in float32, weights from safetensors only; raises UserError where that cannot be.

    Attention is the plain matmul-softmax-matmul form, which every later pass sees as operators it knows.
    """
    auto_class = _auto_class(spec.auto_class)
    if not (folder / "config.json").is_file():
        raise UserError("model.path: there is no config.json in the model's folder; name a transformers folder")
    config = _without_state(_read_config(folder))
    if spec.weight_seed is not None:
        return auto_class.from_config(config, dtype=torch.float32, attn_implementation="eager")
    if not any(folder.glob("*.safetensors")):
        pickled = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".pkl"))
        remedy = f"{pickled[0]} is a pickle: convert it to safetensors" if pickled else 'or set weights = "random:0"'
        raise UserError(f"model.path: the model's folder has no *.safetensors; {remedy}")
    model, report = auto_class.from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        attn_implementation="eager",
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    missing = sorted(report["missing_keys"])
    if missing:
        raise UserError(
            f"model.path: the weights lack {len(missing)} tensors that {spec.auto_class} needs, e.g. {missing[0]!r}; "
            "choose the auto_class that the weights belong to"
        )
    return model


def load(spec: ModelSpec, folder: Path) -> Imported:
    """Import through torch.export."""
    return torch_importer.load(spec, folder, build)


def unsupported(spec: ModelSpec, folder: Path) -> list[Unsupported]:
    """Every operator of the model that cannot be imported."""
    return torch_importer.unsupported(spec, folder, build)


def reference(spec: ModelSpec, folder: Path) -> Reference:
    """The model in eager float32."""
    return torch_importer.reference(spec, folder, build)


def _without_state(config: transformers.PretrainedConfig) -> transformers.PretrainedConfig:
    """The config for a library without state, whose graph is the same for every input.

    No key-value cache is returned, and a mixture of experts gathers the weights of each token's experts: transformers'
    own loop over the experts that are hit depends on values, and its grouped product wants aligned sizes.
    """
    parts = [config, *(getattr(config, name, None) for name in getattr(config, "sub_configs", {}))]
    for part in parts:
        if isinstance(part, transformers.PretrainedConfig) and hasattr(part, "use_cache"):
            part.use_cache = False
    config._experts_implementation = "batched_mm"  # noqa: SLF001 - the public way is from_pretrained's argument alone
    return config


def _auto_class(name: str) -> Any:
    found = getattr(transformers, name, None) if name.startswith("Auto") else None
    if not hasattr(found, "from_config"):
        known = [item for item in dir(transformers) if item.startswith("AutoModel")]
        raise UserError(f"model.auto_class: transformers has no {name!r}{did_you_mean(name, known)}")
    return found


def _read_config(folder: Path) -> transformers.PretrainedConfig:
    try:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"model.path: config.json is not usable ({reason}); correct it") from error
