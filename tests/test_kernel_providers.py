"""Which recipes may use oneDNN, and what the choices become as options of its pass."""

from __future__ import annotations

from typing import Any

import pytest

from pydoit import passes, providers, tools
from pydoit.recipe import Recipe


def recipe(**more: Any) -> Recipe:
    inputs = {"x": {"shape": [1, 3, 8, 8]}}
    model = {"source": "torch", "factory": "a.b:c", "inputs": inputs}
    return Recipe.model_validate({"schema": 1, "model": model, **more})


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which oneDNN is not installed."""
    monkeypatch.setattr(tools, "version", lambda _name: tools.ABSENT)


def offload(made: Recipe) -> Any:
    order = providers.with_choices(made, passes.order_of(made))
    return next(use for use in order if isinstance(use, dict) and use["name"] == providers.OFFLOAD)


def test_choices_become_options_of_the_pass() -> None:
    assert offload(recipe()) == {"name": "OffloadOneDnn", "conv2d": "auto", "matmul": "auto", "precision": "float32"}
    chosen = recipe(kernels={"conv2d": "onednn", "matmul": "tvm"}, target={"precision": "bfloat16"})
    assert offload(chosen) == {"name": "OffloadOneDnn", "conv2d": "onednn", "matmul": "tvm", "precision": "bfloat16"}
    assert not list(providers.faults(chosen, passes.order_of(chosen)))


def test_options_in_an_order_stay_as_they_are() -> None:
    own = {"name": "OffloadOneDnn", "matmul": "onednn"}
    made = recipe(passes={"order": [own]})
    assert providers.with_choices(made, passes.order_of(made)) == [own]


def test_without_it_auto_means_tvm(absent: None) -> None:
    assert offload(recipe()) == {"name": "OffloadOneDnn", "conv2d": "tvm", "matmul": "tvm", "precision": "float32"}
    assert not providers.may_use_onednn(recipe())


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"kernels": {"conv2d": "onednn"}}, ("kernels", "conv2d")),
        ({"target": {"precision": "bfloat16"}}, ("target", "precision")),
    ],
)
def test_without_it_the_refusal_names_the_remedy(absent: None, more: dict[str, Any], key: tuple[str, str]) -> None:
    made = recipe(**more)
    ((path, text),) = providers.faults(made, passes.order_of(made))
    assert path == key
    assert "pip install 'doit-modelbuild[onednn]'" in text


def test_language_models_and_gpus_do_without() -> None:
    language = Recipe.model_validate({"schema": 1, "model": {"source": "gguf", "path": "x.gguf"}})
    assert not providers.may_use_onednn(language)
    assert not providers.may_use_onednn(recipe(target={"kind": "cuda", "arch": "sm_90"}))
    assert not providers.may_use_onednn(recipe(kernels={"conv2d": "tvm", "matmul": "tvm"}))
