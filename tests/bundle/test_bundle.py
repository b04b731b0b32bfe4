"""A build that one machine begins and another one finishes: the same keys, no compiler, and the results come back."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import TestWorkspace, make_workspace

from pydoit import builder, target, tools
from pydoit.bundle.adopt import adopt
from pydoit.bundle.adopted import Adopted
from pydoit.bundle.unpack import unpack
from pydoit.digest import hash_file
from pydoit.errors import UserError
from pydoit.session import Options, Session
from pydoit.workspace import open_workspace

SECRET = {"MODELBUILD_CACHE_SECRET": "a secret of this test"}
COMPILED = ["import", "optimize", "tune", "compile", "tokenizer", "weights"]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    """A machine that compiled `tiny` and neither verified nor measured it."""
    workspace = make_workspace(tmp_path_factory.mktemp("first"))
    done = workspace.doit("build", "tiny", "--stages", "compile,weights,tokenizer")
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


@pytest.fixture(scope="module")
def bundle(first: TestWorkspace) -> Path:
    done = first.doit("pack", "tiny", **SECRET)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"tiny: {', '.join(COMPILED)}\ntiny.bundle: ")
    assert done.stdout.endswith(", signed\n")
    return first.root / "tiny.bundle"


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with Python and nothing else."""
    folder = tmp_path_factory.mktemp("path")
    (folder / "python3").symlink_to(sys.executable)
    return str(folder)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory, bundle: Path, without_compiler: str) -> TestWorkspace:
    """A machine without a compiler that verified and measured what the bundle brought."""
    folder = tmp_path_factory.mktemp("second")
    outside = TestWorkspace(folder, folder / "cache")
    variables = {**SECRET, "PATH": without_compiler}
    done = outside.doit("unpack", str(bundle), "--into", "workspace", "--build", "verify,profile", **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return TestWorkspace(folder / "workspace", folder / "cache")


def stages(workspace: TestWorkspace) -> dict[str, dict[str, Any]]:
    return {stage["name"]: stage for stage in workspace.report()["stages"]}


def test_only_what_was_asked_for_runs_and_all_keys_are_the_same(first: TestWorkspace, second: TestWorkspace) -> None:
    here, there = stages(first), stages(second)
    needed = [stage for stage in COMPILED if stage != "tokenizer"]
    assert {name: there[name]["status"] for name in needed} == dict.fromkeys(needed, "hit")
    assert {name: there[name]["status"] for name in ("verify", "profile")} == {"verify": "built", "profile": "built"}
    assert {name: there[name]["key"] for name in needed} == {name: here[name]["key"] for name in needed}
    assert "from another machine: tools.c++: " in there["compile"]["reason"]
    assert "-> absent" in there["compile"]["reason"]


def test_the_other_machine_packages_the_same_artifact(
    first: TestWorkspace, second: TestWorkspace, without_compiler: str
) -> None:
    assert second.doit("build", "tiny", PATH=without_compiler).returncode == 0
    assert first.doit("build", "tiny").returncode == 0
    for name in ("lib.so", "weights/model.safetensors", "manifest.json"):
        assert (first.root / "artifacts/tiny" / name).read_bytes() == (second.root / "artifacts/tiny" / name).read_bytes()
    assert stages(first)["verify"]["key"] == stages(second)["verify"]["key"]


def test_the_same_content_gives_the_same_bytes(first: TestWorkspace, bundle: Path, tmp_path: Path) -> None:
    assert first.doit("pack", "tiny", "-o", str(tmp_path / "again"), TZ="Asia/Tokyo", **SECRET).returncode == 0
    again = first.doit("pack", "tiny", "-o", str(tmp_path / "umask"), **SECRET)
    assert again.returncode == 0
    assert hash_file(tmp_path / "again") == hash_file(tmp_path / "umask")
    assert not list(tmp_path.glob(".*"))


def copy_of(workspace: TestWorkspace, folder: Path) -> TestWorkspace:
    for name in ("workspace", "cache"):
        source = workspace.root if name == "workspace" else workspace.cache
        shutil.copytree(source, folder / name, symlinks=True)
    return TestWorkspace(folder / "workspace", folder / "cache")


def test_results_come_back_where_nothing_can_be_measured(
    first: TestWorkspace, second: TestWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_compiler: str
) -> None:
    done = second.doit("pack", "tiny", "--results", "-o", str(tmp_path / "results"), **SECRET, PATH=without_compiler)
    assert done.stdout.startswith("tiny: verify, profile\n"), done.stderr
    here = copy_of(first, tmp_path)
    monkeypatch.setenv("MODELBUILD_CACHE", str(here.cache))
    monkeypatch.setenv("MODELBUILD_CACHE_SECRET", SECRET["MODELBUILD_CACHE_SECRET"])
    for entry in here.cache.glob("actions/*/*.json"):
        if '"stage":"profile"' in entry.read_text() or '"stage":"verify"' in entry.read_text():
            entry.unlink()
    monkeypatch.setattr(target, "runs_here", lambda _: False)
    monkeypatch.setattr(tools, "cpu_name", lambda: "another processor")
    shutil.rmtree(here.root / "artifacts/.modelbuild/resolved")

    def examined(stage: str) -> Any:
        session = Session(open_workspace(here.root), Options())
        session.open(["tiny"])
        return session.examine("tiny", stage)

    assert examined("profile").status == "deferred"
    unpacked = unpack(tmp_path / "results", here.root, (), unsigned=False, overwrite=False)
    assert (unpacked.written, adopt(unpacked)) == ([], [])
    assert (examined("verify").status, examined("profile").status) == ("hit", "hit")
    assert examined("profile").reason.startswith("from another machine: hardware.cpu: ")
    assert examined("profile").measurements["latency_ms"]["median"] > 0


def test_what_changes_here_is_never_answered_by_a_bundle(second: TestWorkspace, tmp_path: Path, without_compiler: str) -> None:
    here = copy_of(second, tmp_path)
    planned = here.doit("plan", "tiny", PATH=without_compiler).stdout
    assert "compile   hit" in planned
    assert "import    hit" not in here.doit("plan", "tiny", PATH=without_compiler, LDFLAGS="-g").stdout
    here.edit("recipes/parts.py", "nn.ReLU()", "nn.GELU()")
    assert "import    hit" not in here.doit("plan", "tiny", PATH=without_compiler).stdout


def test_without_weights_they_are_made_where_they_are_needed(
    first: TestWorkspace, tmp_path: Path, without_compiler: str
) -> None:
    done = first.doit("pack", "tiny", "--no-weights", "-o", str(tmp_path / "small"), **SECRET)
    assert done.stdout.startswith("tiny: optimize, tune, compile, tokenizer\n"), done.stderr
    other = make_workspace(tmp_path / "other")  # a checkout with the model in it
    variables = {**SECRET, "PATH": without_compiler}
    done = other.doit("unpack", str(tmp_path / "small"), "--build", "verify", **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    built = {name: stage["status"] for name, stage in stages(other).items()}
    assert (built["import"], built["optimize"], built["compile"], built["weights"]) == ("built", "hit", "hit", "built")


def test_a_recipe_that_was_not_compiled_is_told(first: TestWorkspace, tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    for words, said in ((("tiny",), "is not compiled here"), (("tiny", "--results"), "has no results here"),
                        ((), "which recipe"), (("tinny",), "there is no recipe 'tinny'")):  # fmt: skip
        done = workspace.doit("pack", *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not list(workspace.root.glob("*.bundle"))


def test_another_recipe_of_the_same_name_is_not_replaced_and_not_answered(bundle: Path, tmp_path: Path) -> None:
    other = make_workspace(tmp_path)
    other.edit("recipes/parts.py", "nn.ReLU()", "nn.GELU()")
    done = other.doit("unpack", str(bundle), **SECRET)
    assert done.returncode == 2
    assert "recipes/parts.py: here otherwise than in the bundle" in done.stderr
    assert "GELU" in (other.root / "recipes/parts.py").read_text()
    assert other.doit("unpack", str(bundle), "--overwrite", **SECRET).returncode == 0
    assert "compile   hit" in other.doit("plan", "tiny").stdout


@pytest.mark.parametrize(("variables", "options", "status"), [
    ({}, (), 2), ({"MODELBUILD_CACHE_SECRET": "another secret of 16"}, (), 2), ({}, ("--unsigned",), 0), (SECRET, (), 0),
])  # fmt: skip
def test_a_strangers_bundle_is_taken_only_on_demand(
    bundle: Path, tmp_path: Path, variables: dict[str, str], options: tuple[str, ...], status: int
) -> None:
    outside = TestWorkspace(tmp_path, tmp_path / "cache")
    done = outside.doit("unpack", str(bundle), "--into", "new", *options, **variables)
    assert done.returncode == status, done.stderr
    assert (tmp_path / "new").exists() == (status == 0)
    assert bool(list(tmp_path.glob("cache/actions/*/*"))) == (status == 0)


def test_a_key_pair(first: TestWorkspace, tmp_path: Path) -> None:
    from pydoit.signing_keys import new_signing_key, public_key

    key = new_signing_key()
    assert first.doit("pack", "tiny", "-o", str(tmp_path / "b"), MODELBUILD_SIGNING_KEY=key.hex()).returncode == 0
    outside = TestWorkspace(tmp_path, tmp_path / "cache")
    assert outside.doit("unpack", "b", "--into", "no").returncode == 2
    assert outside.doit("unpack", "b", "--into", "no", "--key", new_signing_key().hex()).returncode == 2
    assert outside.doit("unpack", "b", "--into", "yes", "--key", public_key(key).hex()).returncode == 0


def test_a_lost_blob_is_named(second: TestWorkspace, tmp_path: Path, without_compiler: str) -> None:
    here = copy_of(second, tmp_path)
    done = here.doit("build", "tiny", "--stages", "optimize", "--set", "passes.preset=O2", PATH=without_compiler)
    assert done.returncode == 1  # import's parameters are read by no stage that was left, so they were not carried
    assert "is not in the store, only its digest is known" in done.stdout + done.stderr or "module.json" in done.stdout


def test_a_damaged_list_of_adoptions_is_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked/tiny.json").write_text('{"schema": 1, "stages": {"compile": {"key": "x", "entry": {}}}}')
    assert Adopted(tmp_path).find("tiny", "compile", "x") is None


def test_nothing_is_written_where_a_bundle_is_refused(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELBUILD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    for folder in (tmp_path / "full", tmp_path / "full/file"):
        with pytest.raises(UserError, match="neither a workspace nor an empty folder"):
            unpack(bundle, folder, (), unsigned=True, overwrite=False)
    assert os.listdir(tmp_path / "full") == ["file"]
    assert not (tmp_path / "cache").exists()
    assert builder.FROM_ELSEWHERE == "from another machine"
