"""The torch importer: names, order, parameters, outputs, and messages for models that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import SMALL_NET, SmallNet, small_net

from pydoit import importers
from pydoit.errors import StageError, UserError
from pydoit.importers.spec import ModelSpec
from pydoit.random_tensors import random_sample


def spec(**changes: Any) -> ModelSpec:
    return ModelSpec.model_validate({**SMALL_NET, **changes})


def one_input(factory: str | None, **changes: Any) -> ModelSpec:
    inputs = {"x": {"shape": [12], "dtype": "float32"}}
    return ModelSpec.model_validate({"source": "torch", "factory": factory, "inputs": inputs, **changes})


def test_inputs_come_in_the_models_order_and_parameters_under_their_own_names(tmp_path: Path) -> None:
    imported = importers.load(spec(), tmp_path)
    described = imported.spec()
    assert [item["name"] for item in described["inputs"]] == ["image", "scale"]
    assert [item["name"] for item in described["outputs"]] == ["features", "logits"]
    assert [item["name"] for item in described["params"]] == list(imported.params)
    expected = {name for name, value in SmallNet().state_dict().items() if value.is_floating_point()}
    assert set(imported.params) == expected
    assert described["params"][0] == {"name": "convolution.weight", "shape": [6, 3, 3, 3], "dtype": "float32"}
    assert len(imported.module["main"].params) == 2 + len(expected)


def test_values_are_those_of_the_model(tmp_path: Path) -> None:
    imported = importers.load(spec(), tmp_path)
    for name, value in small_net(tmp_path).state_dict().items():
        if name in imported.params:
            np.testing.assert_array_equal(imported.params[name], value.numpy())


def test_outputs_are_chosen_and_unused_parameters_dropped(tmp_path: Path) -> None:
    imported = importers.load(spec(outputs=["features"]), tmp_path)
    assert imported.outputs == ("features",)
    assert not any(name.startswith("classifier") for name in imported.params)


def test_importing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    from tvm.ir import save_json

    one, two = (importers.load(spec(), tmp_path) for _ in range(2))
    assert save_json(one.module) == save_json(two.module)


def test_random_weights_with_calibration_tell_inputs_apart(tmp_path: Path) -> None:
    random = spec(weights="random:7", calibrate_batch_norm=4)
    run = importers.reference(random, tmp_path)
    one, two = (run(random_sample(random.inputs, 0, index))["logits"] for index in range(2))
    assert np.isfinite(one).all()
    assert np.abs(one - two).max() > 1e-3


def test_the_reference_refuses_another_kind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^verify.reference: 'onnxruntime' cannot run source 'torch'; use 'torch'"):
        importers.reference(spec(), tmp_path, "onnxruntime")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (one_input("small_models:not_a_module"), "returns int; return a torch.nn.Module"),
        (one_input("small_models:reshaped_wrongly"), "did you mean 'reshaped_wrong'?"),
        (one_input("small_models:reshaped_wrong", inputs={"x": {"shape": [2, 5], "dtype": "float32"}}),
         "does not accept x float32 [2, 5]"),
        (one_input("small_models:reshaped_wrong", inputs={"y": {"shape": [12], "dtype": "float32"}}),
         "model.inputs.y: the model takes no input 'y'; known: x"),
        (one_input("small_models:small_net", inputs={"image": {"shape": [1, 3, 8, 8], "dtype": "float32"}}),
         "also needs the input 'scale'"),
        (one_input("small_models:reshaped_wrong", outputs=["outptu"]), "no output 'outptu'; did you mean 'output'?"),
        (one_input(None), 'model.factory: source = "torch" needs one'),
    ],
)  # fmt: skip
def test_models_that_do_not_fit(tmp_path: Path, model: ModelSpec, message: str) -> None:
    with pytest.raises(UserError) as caught:
        importers.load(model, tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_control_flow_on_values_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"torch.export cannot trace the model at .+ \(.+\); remove control flow"):
        importers.load(one_input("small_models:branching"), tmp_path)


def test_all_unsupported_operators_are_listed_with_counts(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        importers.load(one_input("small_models:cumulative"), tmp_path)
    assert "logcumsumexp.default (1)" in str(caught.value)
    assert "i0.default (2)" in str(caught.value)


def test_unsupported_operators_name_the_line_and_what_to_try(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        importers.load(one_input("small_models:cumulative"), tmp_path)
    assert "small_models.py:" in str(caught.value)
    assert "write it with other operators" in str(caught.value)


def test_random_operators_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        importers.load(one_input("small_models:dropping"), tmp_path)
    assert "randn_like.default (1)" in str(caught.value)
    assert "its result is random" in str(caught.value)
    assert "small_models.py:" in str(caught.value)


def test_control_flow_on_values_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"cannot trace the model at \S+small_models.py:\d+"):
        importers.load(one_input("small_models:branching"), tmp_path)


def test_nested_inputs_and_constants(tmp_path: Path) -> None:
    names = [f"past_{index}_{part}" for index in range(2) for part in ("key", "value")]
    model = {
        "source": "torch", "factory": "small_models:nested", "constants": {"twice": True},
        "inputs": {name: {"shape": [12], "dtype": "float32"} for name in reversed(names)},
    }  # fmt: skip
    nested_spec = ModelSpec.model_validate(model)
    imported = importers.load(nested_spec, tmp_path)
    assert sorted(imported.inputs) == sorted(names)
    assert imported.outputs == ("total", "turned")
    sample = random_sample(nested_spec.inputs, 0, 0)
    found = importers.reference(nested_spec, tmp_path)(sample)
    total = sum(sample[f"past_{i}_key"] * sample[f"past_{i}_value"] for i in range(2)) * (np.arange(1, 13) / 7)
    np.testing.assert_allclose(found["total"], total * 2, rtol=1e-6)
