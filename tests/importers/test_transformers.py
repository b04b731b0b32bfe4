"""The transformers importer on a tiny BERT: safetensors only, named outputs, random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from pydoit import importers
from pydoit.errors import UserError
from pydoit.importers.spec import ModelSpec

CONFIG = transformers.BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=16,
)  # fmt: skip
INPUTS = {
    "attention_mask": {"shape": [1, 6], "dtype": "int64", "range": [1, 1]},
    "input_ids": {"shape": [1, 6], "dtype": "int64", "range": [0, 49]},
}


def spec(**changes: Any) -> ModelSpec:
    return ModelSpec.model_validate({"source": "transformers", "inputs": INPUTS, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    transformers.BertModel(CONFIG).save_pretrained(path)
    return path


def test_chosen_outputs_and_their_parameters(folder: Path) -> None:
    imported = importers.load(spec(outputs=["last_hidden_state"]), folder)
    described = imported.spec()
    assert [item["name"] for item in described["inputs"]] == ["input_ids", "attention_mask"]
    assert described["outputs"] == [{"name": "last_hidden_state", "shape": [1, 6, 16], "dtype": "float32"}]
    assert "embeddings.word_embeddings.weight" in imported.params
    assert "pooler.dense.weight" not in imported.params


def test_the_reference_is_the_model(folder: Path) -> None:
    ids = np.array([[1, 2, 3, 4, 5, 6]])
    mask = np.array([[1, 1, 1, 1, 0, 0]])
    outputs = importers.reference(spec(), folder)({"input_ids": ids, "attention_mask": mask})
    model = transformers.BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
    # two attention implementations in float32: 16-long sums of values near 1
    np.testing.assert_allclose(outputs["last_hidden_state"], expected.last_hidden_state.numpy(), atol=1e-5)
    assert set(outputs) == {"last_hidden_state", "pooler_output"}


def test_random_weights_need_a_config_only(tmp_path: Path) -> None:
    CONFIG.save_pretrained(tmp_path)
    one, two, other = (importers.load(spec(weights=f"random:{seed}"), tmp_path).params for seed in (3, 3, 4))
    name = "encoder.layer.0.output.dense.weight"
    np.testing.assert_array_equal(one[name], two[name])
    assert not np.array_equal(one[name], other[name])
    assert (one["embeddings.LayerNorm.weight"] == 1).all()
    assert (one["embeddings.LayerNorm.bias"] == 0).all()


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    CONFIG.save_pretrained(tmp_path)
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"no \*.safetensors; pytorch_model.bin is a pickle"):
        importers.load(spec(), tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_class": "AutoModelForMaskedLMs"}, "did you mean 'AutoModelForMaskedLM'?"),
        ({"auto_class": "BertModel"}, "transformers has no 'BertModel'"),
        ({"auto_class": "AutoModelForMaskedLM"}, "the weights lack"),
        ({"outputs": ["hidden"]}, "has no output 'hidden'"),
        ({"inputs": {"input_idz": INPUTS["input_ids"]}}, "did you mean 'input_ids'?"),
    ],
)
def test_specs_that_do_not_fit(folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        importers.load(spec(**changes), folder)
    assert message in str(caught.value)


def test_configs_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config.json"):
        importers.load(spec(), tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config.json is not usable"):
        importers.load(spec(), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-type"}))
    with pytest.raises(UserError, match=r"config.json is not usable"):
        importers.load(spec(), tmp_path)
