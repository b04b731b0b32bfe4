"""Checkpoints are read without running code from them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from pydoit.errors import UserError
from pydoit.importers import checkpoint


class Evil:
    """Would run code when unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("executed",)


def test_both_formats_give_the_same_tensors(tmp_path: Path) -> None:
    state = nn.Linear(2, 3).state_dict()
    torch.save(state, tmp_path / "a.pth")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "b.pt")
    save_file(state, tmp_path / "c.safetensors")
    for name in ("a.pth", "b.pt", "c.safetensors"):
        read = checkpoint.read(tmp_path / name)
        assert all(torch.equal(read[key], state[key]) for key in state)


def test_code_in_a_pickle_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"weight": Evil()}, tmp_path / "evil.pth")
    (tmp_path / "plain.bin").write_bytes(pickle.dumps({"weight": Evil()}))
    for name in ("evil.pth", "plain.bin"):
        with pytest.raises(UserError, match="is refused"):
            checkpoint.read(tmp_path / name)
    assert "executed" not in capsys.readouterr().out


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "cut.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{")
    (tmp_path / "cut.pth").write_bytes(b"PK")
    (tmp_path / "x.onnx").write_bytes(b"")
    torch.save([1, 2], tmp_path / "list.pt")
    save_file({"weight": torch.zeros(3, 3)}, tmp_path / "other.safetensors")
    for name, message in (
        ("cut.safetensors", "no valid safetensors"),
        ("cut.pth", "is refused"),
        ("x.onnx", "is no checkpoint"),
        ("list.pt", "holds no state_dict"),
        ("gone.pth", "it has cut.pth, cut.safetensors"),
    ):
        with pytest.raises(UserError) as caught:
            checkpoint.read(tmp_path / name)
        assert message in str(caught.value)
    with pytest.raises(UserError, match="does not fit the model"):
        checkpoint.load_into(nn.Linear(2, 3), tmp_path / "other.safetensors")
