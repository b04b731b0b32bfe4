"""Runs an artifact folder from Python: needs TVM's runtime library, tvm_ffi and numpy, for text also tokenizers and jinja2."""

from __future__ import annotations

from pydoit.runtime.language import LanguageModel, load_language_model
from pydoit.runtime.model import Model, TensorSpec, load
from pydoit.runtime.text.sampling import Sampling
from pydoit.runtime.text_model import Completion, TextModel, load_text_model

__all__ = [
    "Completion",
    "LanguageModel",
    "Model",
    "Sampling",
    "TensorSpec",
    "TextModel",
    "load",
    "load_language_model",
    "load_text_model",
]
