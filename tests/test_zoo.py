"""Small models of every kind agree with PyTorch after each preset, or are refused by one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chain import run_chain, verified
from zoo import CASES

from pydoit.errors import UserError

# What TVM 0.27's importer cannot translate, and what the refusal must name.
REFUSED = {"log-cumulative": "logcumsumexp.default"}


def model_of(name: str) -> dict[str, Any]:
    ranges = {"ids": [0, 30], "mask": [1, 1]}
    inputs = {
        key: {"shape": list(shape), "dtype": dtype, "range": ranges.get(key)}
        for key, (shape, dtype) in CASES[name].inputs.items()
    }
    return {"source": "torch", "factory": f"zoo:case_{name.replace('-', '_')}", "inputs": inputs}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_imported_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=REFUSED[name]):
        run_chain(model_of(name), tmp_path)


@pytest.mark.parametrize("name", [name for name in CASES if name not in REFUSED])
def test_preset_o2_agrees_with_torch(name: str, tmp_path: Path) -> None:
    out = run_chain(model_of(name), tmp_path, "O2", "x86-64-v3")
    measured = verified(model_of(name), out, tmp_path, max_abs=2e-5, max_rel=1e-5)
    assert measured["passed"]


SOME = ("conv-3x3-odd", "conv-depthwise", "attention-7", "tokens", "residual", "layer-norm", "reductions", "mlp-odd")


@pytest.mark.parametrize("preset", ["O0", "O1", "O3"])
@pytest.mark.parametrize("name", SOME)
def test_other_presets_agree_with_torch(name: str, preset: str, tmp_path: Path) -> None:
    out = run_chain(model_of(name), tmp_path, preset, "x86-64-v3")
    assert verified(model_of(name), out, tmp_path, max_abs=2e-5, max_rel=1e-5)["passed"]


@pytest.mark.parametrize("arch", ["x86-64-v2", "x86-64-v4", "sapphirerapids"])
@pytest.mark.parametrize("name", SOME)
def test_other_archs_agree_with_torch(name: str, arch: str, tmp_path: Path) -> None:
    from pydoit.target import ResolvedTarget, runs_here

    if not runs_here(ResolvedTarget(kind="cpu", arch=arch)):
        pytest.skip(f"this CPU does not run {arch} code")
    out = run_chain(model_of(name), tmp_path, "O2", arch)
    assert verified(model_of(name), out, tmp_path, max_abs=2e-5, max_rel=1e-5)["passed"]
