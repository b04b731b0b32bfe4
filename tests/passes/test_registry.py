"""The registry of passes: readable without TVM, right about options, clear about mistakes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, is_dataclass
from importlib import import_module

import pytest

from pydoit import passes
from pydoit.errors import UserError


def test_reading_the_registry_imports_no_tvm() -> None:
    code = "import sys, pydoit.passes; assert 'tvm' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("preset", passes.PRESETS)
def test_presets_name_known_passes(preset: str) -> None:
    for use in passes.PRESETS[preset]:
        passes.check_use(use)


@pytest.mark.parametrize("name", passes.PASSES)
def test_each_pass_can_be_made_with_its_defaults(name: str) -> None:
    assert callable(passes.make_pass({"name": name, **passes.PASSES[name].options}))


@pytest.mark.parametrize("name", passes.PASSES)
def test_options_of_own_passes_are_their_fields(name: str) -> None:
    module, _, attribute = passes.PASSES[name].factory.partition(":")
    if not module.startswith("pydoit."):
        return
    made = getattr(import_module(module), attribute)
    assert is_dataclass(made)
    assert {field.name: field.default for field in fields(made)} == dict(passes.PASSES[name].options)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("FuseOp", 'did you mean "FuseOps"'),
        ({"name": "PackWeights", "lane": 8}, 'did you mean "lanes"'),
        ({"name": "FuseTIR", "level": 1}, "it has none"),
        ("nowhere.at_all:Pass", "cannot be made"),
        ({"name": "pydoit.passes.fold_pad:FoldPad", "depth": 1}, "cannot be made"),
    ],
)
def test_mistakes_are_named(use: passes.Entry, words: str) -> None:
    with pytest.raises(UserError, match=words):
        passes.make_pass(use)
