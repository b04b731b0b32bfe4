"""package: a self-contained folder with the same bytes each time."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from small_models import SMALL_NET, build, package

from pydoit.stages import package as stage
from pydoit.stages import tokenizer


def test_the_folder_is_whole_and_names_no_path(tmp_path: Path) -> None:
    fetched = tmp_path / "fetched"
    (fetched / "model").mkdir(parents=True)
    (fetched / "model/tokenizer.json").write_text("{}")
    (fetched / "model/secret.txt").write_text("not a tokenizer file")
    stages = build(SMALL_NET, tmp_path / "build", fetched)
    stages["tokenizer"] = tmp_path / "tokenizer"
    stages["tokenizer"].mkdir()
    tokenizer.run(tokenizer.Spec(source="transformers"), {"fetch": fetched}, stages["tokenizer"])
    one, two = package(stages, tmp_path / "one"), package(stages, tmp_path / "two")
    files = sorted(path.relative_to(one).as_posix() for path in one.rglob("*") if path.is_file())
    assert files == ["lib.so", "manifest.json", "tokenizer/tokenizer.json", "weights/model.safetensors"]
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in files)
    text = (one / "manifest.json").read_text()
    assert str(tmp_path) not in text
    manifest = json.loads(text)
    assert manifest["library"]["sha256"] == hashlib.sha256((one / "lib.so").read_bytes()).hexdigest()
    assert manifest["weights"][0]["bytes"] == (one / "weights/model.safetensors").stat().st_size
    assert manifest["target"]["kind"] == "cpu"
    assert set(manifest["toolchain"]) == set(stage.TOOLS)
    assert text.endswith("}\n")
