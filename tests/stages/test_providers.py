"""providers: oneDNN and TVM timed for each operator that is open; optimize, compile and package follow the records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_import import write_import

from pydoit import passes, runtime
from pydoit.errors import UserError
from pydoit.kernels.onednn.build import LIBRARY
from pydoit.kernels.onednn.site import sites_of
from pydoit.records import Record, Records, TuningTarget, read_records
from pydoit.stages import compile as compile_stage
from pydoit.stages import optimize, package, providers, tune
from pydoit.tvm_compat import load_json

TARGET = {"kind": "cpu", "arch": "x86-64-v3", "threads": 2}
OPEN = [
    {"name": "OffloadOneDnn", "conv2d": "auto", "matmul": "auto"} if use == "OffloadOneDnn" else use
    for use in passes.PRESETS["O2"]
]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What import would write for the net."""
    return write_import(tmp_path_factory.mktemp("import"))


def test_each_open_operator_gets_a_provider_and_schedules_stay(imported: Path, tmp_path: Path) -> None:
    schedule = Record(task="other", key="0" * 64, decisions={}, microseconds=1.0, default_microseconds=2.0)
    (tmp_path / "given.json").write_text(Records(target=TuningTarget(arch="x86-64-v3"), records=(schedule,)).to_text())
    out = tmp_path / "out"
    out.mkdir()
    spec = providers.Spec.model_validate({"passes": OPEN, "target": TARGET})
    measured = providers.run(spec, {"import": imported, "records": tmp_path / "given.json"}, out)
    found = read_records(out / "records.json").records
    assert measured["compared"] == 2
    assert schedule in found
    assert {record.decisions["provider"] for record in found if record != schedule} <= {"onednn", "tvm"}
    assert sorted(record.task.partition(" ")[0] for record in found) == ["conv2d", "matmul", "other"]
    assert [path.name for path in out.iterdir()] == ["records.json"]


def test_a_build_follows_the_records(imported: Path, tmp_path: Path) -> None:
    folders = {"import": imported, **{name: tmp_path / name for name in ("optimize", "tune", "compile", "package")}}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    every = [{**use, "conv2d": "onednn"} if isinstance(use, dict) else use for use in OPEN]
    optimize.run(
        optimize.Spec.model_validate({"passes": every, "target": TARGET, "onednn": True}), folders, folders["optimize"]
    )
    (site,) = sites_of(load_json((folders["optimize"] / "module.json").read_text())).values()
    record = Record(task=site.task, key=site.key, decisions={"provider": "onednn"}, microseconds=1.0, default_microseconds=2.0)
    for arch, expected in (("x86-64-v4", []), ("x86-64-v3", [site])):
        (tmp_path / "records.json").write_text(Records(target=TuningTarget(arch=arch), records=(record,)).to_text())
        given = {**folders, "records": tmp_path / "records.json"}
        optimize.run(
            optimize.Spec.model_validate({"passes": OPEN, "target": TARGET, "onednn": True}), given, folders["optimize"]
        )
        assert list(sites_of(load_json((folders["optimize"] / "module.json").read_text())).values()) == expected
    tuned = tune.run(tune.Spec.model_validate({"target": TARGET}), given, folders["tune"])
    assert tuned["stale"] == []
    spec = compile_stage.Spec.model_validate({"target": TARGET, "onednn": True})
    assert compile_stage.run(spec, folders, folders["compile"])["onednn"] == 1
    del folders["import"]
    package.run(package.Spec.model_validate({"recipe": "net", "target": TARGET}), folders, folders["package"])
    manifest = json.loads((folders["package"] / "manifest.json").read_text())
    assert [item["path"] for item in manifest["libraries"]] == [LIBRARY]
    assert manifest["libraries"][0]["bytes"] == (folders["package"] / LIBRARY).stat().st_size
    (folders["package"] / LIBRARY).unlink()
    with pytest.raises(UserError, match=f"{LIBRARY} is missing"):
        runtime.load(folders["package"])
