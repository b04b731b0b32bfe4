"""doit lock: what it writes and keeps, --check, --upgrade, a damaged file; and builds that keep to it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import TestWorkspace, make_workspace, write_weights
from locked import Locked, make_locked

from pydoit.builder import Builder
from pydoit.lockfile.file import read_lock, to_text
from pydoit.lockfile.guard import foreign_arch
from pydoit.lockfile.observe import packaged
from pydoit.results import Result
from pydoit.session import Session
from pydoit.store import Store
from pydoit.workspace import open_workspace

LOCK = "modelbuild.lock"


@pytest.fixture
def locked(tmp_path: Path) -> Locked:
    """A workspace of the recipe tiny with its lock file."""
    locked = make_locked(tmp_path)
    for name in ("hub", "wheel", "passes", "installed"):
        (locked.root / f"recipes/{name}.toml").unlink()
    assert locked.doit("lock").returncode == 0
    return locked


def test_it_is_stable_and_a_round_trip(locked: Locked) -> None:
    before = (locked.root / LOCK).read_text()
    again = locked.doit("lock")
    assert "unchanged" in again.stdout
    assert (locked.root / LOCK).read_text() == before
    lock = read_lock(locked.root)
    assert lock is not None
    assert to_text(dict(reversed(lock.items()))) == before
    assert list(lock) == ["tiny", "tiny@long"]
    assert str(locked.root) not in before


def test_an_entry_does_not_depend_on_other_recipes(locked: Locked) -> None:
    before = (locked.root / LOCK).read_text()
    shutil.copy(locked.root / "recipes/tiny.toml", locked.root / "recipes/zebra.toml")
    locked.doit("lock", "zebra")
    after = (locked.root / LOCK).read_text()
    assert after.startswith(before.rstrip())
    assert "[build.zebra]" in after


def test_check_names_what_is_missing_stale_or_changed(locked: Locked) -> None:
    assert locked.doit("lock", "--check").returncode == 0
    (locked.root / "recipes/tiny.toml").rename(locked.root / "recipes/other.toml")
    done = locked.doit("lock", "--check")
    assert done.returncode == 1
    assert "other: is not in modelbuild.lock; run `doit lock other`" in done.stdout
    assert "tiny@long: is in modelbuild.lock, but no recipe; run `doit lock`" in done.stdout
    removed = locked.doit("lock")
    assert "tiny: removed" in removed.stdout
    assert locked.doit("lock", "--check").returncode == 0
    locked.edit("recipes/other.toml", "samples = 2", "samples = 4")
    done = locked.doit("lock", "--check", "other")
    assert (done.returncode, done.stdout) == (1, "other: recipe.verify.samples: 2 -> 4; undo it, or `doit lock other`\n")


def test_lock_keeps_the_toolchain_and_upgrade_takes_it(locked: Locked) -> None:
    locked.distribution("torch", "9.9.9")
    locked.edit("recipes/tiny.toml", "samples = 2", "samples = 4")
    done = locked.doit("lock")
    assert done.returncode == 0
    assert "tiny: recipe.verify.samples: 2 -> 4" in done.stdout
    assert "(here 9.9.9); install the locked version, or `doit lock --upgrade tiny toolchain`" in done.stdout
    assert '"9.9.9"' not in (locked.root / LOCK).read_text()
    locked.edit("recipes/tiny.toml", "samples = 4", "samples = 5")
    done = locked.doit("lock", "--upgrade", "toolchain")
    assert "tiny: toolchain.torch: " in done.stdout
    text = (locked.root / LOCK).read_text()
    assert text.count('torch = "9.9.9"') == 2
    assert text.count("verify.samples = 4") == 2  # that part alone
    locked.doit("lock", "--upgrade", "tiny")
    text = (locked.root / LOCK).read_text()
    assert (text.count("verify.samples = 5"), text.count("verify.samples = 4")) == (1, 1)


def test_upgrade_sources_alone(locked: Locked) -> None:
    locked.flip("models/tiny.safetensors")
    locked.edit("recipes/tiny.toml", "samples = 2", "samples = 4")
    locked.doit("lock", "--upgrade", "sources", "tiny")
    done = locked.doit("lock", "--check", "tiny")
    assert done.stdout.splitlines() == ["tiny: recipe.verify.samples: 2 -> 4; undo it, or `doit lock tiny`"]


def test_wrong_words(locked: Locked) -> None:
    for words, text in ((("tinny",), "there is no recipe 'tinny'"), (("--upgrade", "toolchains"), "toolchain"),
                        (("--check", "--upgrade"), "choose one")):  # fmt: skip
        done = locked.doit("lock", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert text in done.stderr


def test_without_a_lock_or_an_entry_the_status_is_2(locked: Locked) -> None:
    shutil.copy(locked.root / "recipes/tiny.toml", locked.root / "recipes/new.toml")
    for option in ("--locked", "--frozen"):
        done = locked.doit("build", "new", option)
        assert (done.returncode, done.stderr) == (2, "new is not in modelbuild.lock; run `doit lock new` and check it in\n")
    (locked.root / LOCK).unlink()
    for words in (("build", "tiny", "--locked"), ("build", "tiny", "--frozen"), ("lock", "--check")):
        done = locked.doit(*words)
        assert (done.returncode, done.stderr) == (2, "there is no modelbuild.lock; run `doit lock` and check it in\n")


DAMAGES = {
    "schema": ("schema = 1", "schema = 2", ":2: schema: is 2"),
    "no schema": ("schema = 1\n", "", "schema: is missing"),
    "TOML": ("[build.tiny]", "[build.tiny", ": syntax: "),
    "conflict": ("[build.tiny]", "<<<<<<< ours\n[build.tiny]", ":4: syntax: a merge conflict; take either side"),
    "unknown table": ("[build.tiny.code]", "[build.tiny.cod]", "build.tiny.cod: is unknown"),
    "unknown key": ("schema = 1", "schema = 1\nrevision = 3", ":3: revision: is unknown"),
    "value": ("verify.samples = 2", "verify.samples = 3", ":5: build.tiny.digest: does not fit"),
    "digest": (
        '"models/notes.md" = "sha256:',
        '"models/notes.md" = "sha256:0',
        "build.tiny.sources.models/notes.md: 'sha256:0",
    ),
    "type": ('llvm = "', 'llvm = 3 # "', "build.tiny.toolchain.llvm: must be text"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_lock_is_one_line(locked: Locked, name: str) -> None:
    old, new, words = DAMAGES[name]
    path = locked.root / LOCK
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    done = locked.doit("build", "tiny", "--locked")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert done.stderr.startswith("modelbuild.lock:")
    assert words in done.stderr


def test_the_locked_arch_stands_for_native(locked: Locked) -> None:
    path = locked.root / LOCK
    assert path.read_text().count('arch = "x86-64-v') == 2
    for arch in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        path.write_text(path.read_text().replace('arch = "x86-64-v', f'arch = "{arch}" # "'))
        assert locked.doit("lock", "--check").returncode == 0
        assert locked.doit("build", "tiny", "--locked", "--stages", "fetch").returncode == 0
        assert f'arch = "{arch}"' in _after(locked.doit("lock").returncode, path)
    assert "arch: x86-64-v4 -> " in locked.doit("lock", "--upgrade", "arch").stdout or "v4" in path.read_text()


def _after(status: int, path: Path) -> str:
    assert status == 0
    return path.read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    """A workspace that was built and then locked; every test leaves it so."""
    workspace = make_workspace(tmp_path_factory.mktemp("built"))
    workspace.build()
    assert workspace.doit("lock").returncode == 0
    return workspace


def test_a_locked_build_is_up_to_date(built: TestWorkspace) -> None:
    text = (built.root / LOCK).read_text()
    for name in ("lib.so", "manifest.json", "weights/model.safetensors"):
        assert f'"{name}" = {{sha256 = "' in text
    assert built.report()["library"]["sha256"] in text
    done = built.doit("build", "tiny", "--locked")
    assert (done.returncode, done.stderr) == (0, "")


def test_another_artifact_is_not_published(built: TestWorkspace) -> None:
    path = built.root / LOCK
    before = path.read_text()
    sha256 = built.report()["library"]["sha256"]
    path.write_text(before.replace(sha256, "0" * 64))
    shutil.rmtree(built.root / "artifacts/tiny")
    done = built.doit("build", "tiny", "--locked")
    assert done.returncode == 1
    assert f"tiny: artifact.lib.so: 000000000000 -> {sha256[:12]}; `doit build tiny --check-reproducible`" in done.stderr
    assert not (built.root / "artifacts/tiny/manifest.json").exists()
    assert built.doit("plan", "tiny", "--locked").returncode == 0
    path.write_text(before)
    assert built.build("tiny", "--locked")["package"] == "restored"


def test_a_lock_after_a_change_without_a_build_has_no_artifact(built: TestWorkspace) -> None:
    path = built.root / LOCK
    before = path.read_text()
    write_weights(built.root / "models/tiny.safetensors", seed=1)
    done = built.doit("lock")
    assert "no artifact is locked of tiny: not built from this yet" in done.stdout
    assert "[build.tiny.artifact]" not in path.read_text()
    write_weights(built.root / "models/tiny.safetensors")
    built.doit("lock")
    assert path.read_text() == before


def test_another_store_keeps_the_locked_artifact(built: TestWorkspace, tmp_path: Path) -> None:
    path = built.root / LOCK
    before = path.read_text()
    assert built.doit("lock", MODELBUILD_CACHE=str(tmp_path)).returncode == 0
    assert path.read_text() == before


def test_a_package_with_deferred_parts_is_compared_in_what_it_has(built: TestWorkspace) -> None:
    session = Session(open_workspace(built.root))
    session.builder = Builder(session.workspace, Store(built.cache), session.history, frozenset())
    session.open(["tiny"])
    package = session.examine("tiny", "package")
    assert package is not None
    node = session.node("tiny", "package")
    names = {name: file.sha256 for name, file in package.files.items()}
    for locked, changed in (
        ({**names, "manifest.json": "0" * 64}, []),
        ({**names, "tokenizer/vocabulary.txt": "0" * 64}, []),
        ({**names, "lib.so": "0" * 64}, ["artifact.lib.so"]),
    ):
        session.builder.locked["tiny"] = locked
        session.builder.results["tiny", "tokenizer"] = Result("tokenizer", "deferred")
        assert [change.what for change in session.builder.artifact_drift(node)] == changed
    assert "manifest.json" not in packaged(package, is_partial=True)
    del session.builder.results["tiny", "tokenizer"]
    session.builder.locked["tiny"] = {name: sha256 for name, sha256 in names.items() if name == "lib.so"}
    assert session.builder.artifact_drift(node) == []  # locked where weights were deferred


def test_the_host_that_lacks_the_locked_arch_is_told(built: TestWorkspace) -> None:
    session = Session(open_workspace(built.root))
    session.open(["tiny"])
    lock = read_lock(built.root) or {}
    assert foreign_arch(session, lock) == []
    session.builder.results["tiny", "verify"] = Result("verify", "deferred", reason="needs a CPU that runs x86-64-v4 code")
    assert foreign_arch(session, lock)[0].startswith("tiny: is locked for x86-64-v")


def test_frozen_asks_nothing(built: TestWorkspace) -> None:
    before = (built.root / "recipes/tiny.toml").read_text()
    built.edit("recipes/tiny.toml", "samples = 2", "samples = 3")
    built.edit("recipes/tiny.toml", 'path = "models"', 'path = "elsewhere"')  # the lock's source is used
    assert built.doit("build", "tiny", "--locked").returncode == 2
    done = built.doit("build", "tiny", "--frozen")
    assert done.returncode == 0, done.stderr
    built.write("recipes/tiny.toml", before)
    assert built.doit("build", "tiny", "--locked").returncode == 0


def test_a_lock_for_a_stronger_cpu(built: TestWorkspace) -> None:
    """Stands in for another machine: this one is asked for an arch that it may lack."""
    native = json.loads((built.root / "artifacts/tiny/manifest.json").read_bytes())["target"]["arch"]
    path = built.root / LOCK
    before = path.read_text()
    path.write_text(before.replace(f'arch = "{native}"', 'arch = "x86-64-v2"'))
    done = built.doit("build", "tiny", "--frozen", "--stages", "compile")
    assert done.returncode == 0, done.stderr
    shown = built.doit("plan", "tiny", "--frozen", "--stages", "compile").stdout
    assert "tiny: compile   hit" in shown
    path.write_text(before)
