"""Nested inputs and outputs have flat, stable names."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import torch

from pydoit.importers import torch_tree

ONE = torch.ones(1)


@dataclass
class Result:
    """A user's own result."""

    states: torch.Tensor
    more: tuple[torch.Tensor, dict[str, torch.Tensor]]


def names(value: object) -> list[str]:
    return [name for name, _ in torch_tree.named_outputs(value)]


def test_outputs() -> None:
    assert names(ONE) == ["output"]
    assert names((ONE,)) == ["output"]
    assert names([ONE, (ONE, ONE)]) == ["output_0", "output_1_0", "output_1_1"]
    assert names({"a": ONE, "b": [ONE], "c": None}) == ["a", "b_0"]
    assert names(Result(ONE, (ONE, {"x": ONE}))) == ["states", "more_0", "more_1_x"]
    assert names(namedtuple("Pair", "left right")(ONE, ONE)) == ["left", "right"]


def test_inputs() -> None:
    flat = {"x": 1, "past_0_key": 2, "past_0_value_states": 3, "past_1_key": 4, "pair_0": 5, "pair_1": 6}
    nested = torch_tree.nest(flat, ["x", "past", "pair"])
    assert nested == {"x": 1, "past": [{"key": 2, "value_states": 3}, {"key": 4}], "pair": [5, 6]}
    assert torch_tree.nest({"input_ids": 1}, ["input_id", "input"]) == {"input_ids": 1}
    assert torch_tree.parameter_of("input_idz", ["input"]) == "input_idz"
