"""Hostile bundles: each is refused in a line, quickly, and nothing appears outside what a bundle may write."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pydoit.bundle import archive as archive_module
from pydoit.bundle.archive import Archive, write_archive
from pydoit.bundle.index import CONTEXT, MEMBER, Index, Member, PackedRecipe, PackedStage, is_member_name, seal
from pydoit.bundle.unpack import unpack
from pydoit.errors import StoreError, UserError
from pydoit.keys import canonical, digest_of
from pydoit.remote.signing import Trust
from pydoit.store import Blob, Entry, Store, blob_name, encode_entry, entry_name

SECRET = "a secret of this test"
TRUST = Trust(secret=SECRET.encode())
LIBRARY = b"code" * 1000
SETTINGS = b'schema = 1\ndefault = ["x"]\n'


def member(data: bytes) -> Member:
    return Member(hashlib.sha256(data).hexdigest(), len(data))


class Bundle:
    """The members of a good bundle, to be spoiled in one thing and written."""

    def __init__(self, folder: Path) -> None:
        self.path, self.folder = folder / "bundle", folder
        document: dict[str, Any] = {"stage": "compile", "config": {}}
        blob = member(LIBRARY)
        self.entry = Entry(digest_of(document), "compile", document, {"lib.so": Blob(blob.sha256, blob.bytes)})
        self.data: dict[str, bytes] = {
            blob_name(blob.sha256): LIBRARY,
            entry_name(self.entry.key): TRUST.seal(encode_entry(self.entry)),
            "workspace/modelbuild.toml": SETTINGS,
            "workspace/recipes/x.toml": b"schema = 1\n",
        }
        self.recipes = {"x": PackedRecipe("x86-64-v3", {"compile": PackedStage(self.entry.key, is_carried=True)})}
        self.files: dict[str, Member] | None = None

    def index(self) -> bytes:
        files = self.files or {name: member(data) for name, data in self.data.items()}
        return seal(Index("build", self.recipes, files), TRUST)

    def write(self, change: Callable[[zipfile.ZipInfo], object] = lambda item: None) -> Path:
        """As `doit pack` writes it, but for `change` of each member's metadata."""
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_STORED) as opened:
            for name, data in [(MEMBER, self.index()), *self.data.items()]:
                information = archive_module._information(name, len(data))
                change(information)
                opened.writestr(information, data)
        return self.path

    def refused(self, words: str = "", unsigned: bool = False) -> None:
        before = {path for path in self.folder.rglob("*") if path.is_file()}
        with pytest.raises(UserError) as caught:
            unpack(self.path, self.folder / "new", (), unsigned=unsigned, overwrite=False)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
        after = {
            path for path in self.folder.rglob("*") if path.is_file() and "store" not in path.relative_to(self.folder).parts[:1]
        }
        assert after <= before
        assert not list(self.folder.glob("store/actions/*/*"))
        assert not list(self.folder.glob("store/tmp/*"))


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    monkeypatch.setenv("MODELBUILD_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("MODELBUILD_CACHE_SECRET", SECRET)
    return Bundle(tmp_path)


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """No test may take more than 200 MB beyond what the process has."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # kilobytes


def test_a_good_one(bundle: Bundle) -> None:
    found = unpack(bundle.write(), bundle.folder / "new", (), unsigned=False, overwrite=False)
    assert found.written == ["modelbuild.toml", "recipes/x.toml"]
    assert Store(bundle.folder / "store").lookup(bundle.entry.key) == bundle.entry
    assert (bundle.folder / "new/modelbuild.toml").read_bytes() == SETTINGS
    again = unpack(bundle.path, bundle.folder / "new", (), unsigned=False, overwrite=False)
    assert again.written == []


def test_our_writer_makes_what_our_reader_takes(bundle: Bundle) -> None:
    files = {name: member(data) for name, data in bundle.data.items()}
    write_archive(bundle.path, bundle.index(), files, bundle.data)
    first = bundle.path.read_bytes()
    write_archive(bundle.path, bundle.index(), dict(reversed(files.items())), bundle.data)
    assert bundle.path.read_bytes() == first
    with Archive(bundle.path) as opened:
        opened.expect(files)
        assert opened.index() == bundle.index()


def test_any_byte_may_be_another_and_the_end_may_be_missing(bundle: Bundle) -> None:
    bundle.data = {"workspace/modelbuild.toml": SETTINGS}
    files = {name: member(data) for name, data in bundle.data.items()}
    write_archive(bundle.path, b"index", files, bundle.data)
    whole = bundle.path.read_bytes()
    changed = [whole[:place] + bytes([byte]) + whole[place + 1 :] for place in range(len(whole)) for byte in (0, 0x7F, 0xFF)]
    for data in [*changed, *(whole[:size] for size in range(len(whole)))]:
        bundle.path.write_bytes(data)
        with contextlib.suppress(UserError), Archive(bundle.path) as opened:
            opened.expect(files)
            assert opened.read("workspace/modelbuild.toml", files["workspace/modelbuild.toml"]) == SETTINGS


NAMES = ["../escaped", "/escaped", "workspace/../../escaped", "workspace//x", "workspace/./x", "workspace", "workspace/", "x",
         "workspace\\..\\x", "workspace/a\0b", "workspace/a\nb", "workspace/.git/hooks/post-checkout", "C:/x", "",
         "blobs/aa/bb", f"blobs/aa/{'b' * 64}", f"blobs/bb/{'b' * 64}/x", f"blobs/bb/{'B' * 64}", f"actions/bb/{'b' * 64}",
         f"actions/bb/{'b' * 64}.json.json", "workspace/" + "x" * 2000]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names(bundle: Bundle, name: str) -> None:
    assert not is_member_name(name)
    bundle.data[name] = b"x"
    bundle.write()
    bundle.refused()
    assert not (bundle.folder.parent / "escaped").exists()


MODES = {"link": stat.S_IFLNK | 0o777, "device": stat.S_IFCHR | 0o666, "pipe": stat.S_IFIFO | 0o666, "folder": stat.S_IFDIR | 0o755,
         "program": stat.S_IFREG | 0o4755}  # fmt: skip


@pytest.mark.parametrize("kind", MODES)
def test_links_devices_and_modes(bundle: Bundle, kind: str) -> None:
    def change(item: zipfile.ZipInfo) -> None:
        if item.filename == "workspace/recipes/x.toml":
            item.external_attr = MODES[kind] << 16

    bundle.write(change)
    bundle.refused("is no plain stored file")


def test_a_bomb(bundle: Bundle) -> None:
    bundle.data["workspace/zeros"] = b"\0" * 50_000_000
    bundle.write(lambda item: setattr(item, "compress_type", zipfile.ZIP_DEFLATED))
    assert bundle.path.stat().st_size < 100_000
    bundle.refused("is no plain stored file")


def test_members_that_overlap(bundle: Bundle) -> None:
    bundle.data |= {f"workspace/{number}": b"x" * 100_000 for number in range(3)}
    data = bytearray(bundle.write().read_bytes())
    with zipfile.ZipFile(bundle.path) as opened:
        places = {item.filename: item.header_offset for item in opened.infolist()}
    first, last = (struct.pack("<L", places[f"workspace/{number}"]) for number in (0, 2))
    at = data.rindex(b"workspace/2")
    assert data[at - 4 : at] == last
    data[at - 4 : at] = first
    bundle.path.write_bytes(data)
    bundle.refused()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice(bundle: Bundle) -> None:
    bundle.write()
    with zipfile.ZipFile(bundle.path, "a") as opened:
        opened.writestr(archive_module._information("workspace/recipes/x.toml", 1), b"x")
    bundle.refused("is there twice")


def test_a_large_directory(bundle: Bundle) -> None:
    data = bytearray(bundle.write().read_bytes())
    data[-12:-8] = struct.pack("<H", 65534) + data[-10:-8]
    data[-10:-6] = struct.pack("<L", 2**31)
    bundle.path.write_bytes(data)
    bundle.refused("not a bundle")


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_cut_off_file(bundle: Bundle, part: float) -> None:
    data = bundle.write().read_bytes()
    bundle.path.write_bytes(data[: int(len(data) * part)])
    bundle.refused()


def test_flipped_bits_are_found_wherever_they_are(bundle: Bundle) -> None:
    data = bundle.write().read_bytes()
    for place in range(3, len(data), len(data) // 60):
        bundle.path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        shutil.rmtree(bundle.folder / "new", ignore_errors=True)
        try:
            unpack(bundle.path, bundle.folder / "new", (), unsigned=False, overwrite=False)
        except UserError:
            continue
        # Only metadata that nobody reads, such as a local header's time, may differ.
        assert Store(bundle.folder / "store").lookup(bundle.entry.key) == bundle.entry
        assert (bundle.folder / "new/recipes/x.toml").read_bytes() == bundle.data["workspace/recipes/x.toml"]


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"PK\5\6" + b"\0" * 18, b"\x1f\x8b" + b"\0" * 99])
def test_what_is_no_archive(bundle: Bundle, data: bytes) -> None:
    bundle.path.write_bytes(data)
    bundle.refused()


def test_what_is_no_file(bundle: Bundle) -> None:
    os.mkfifo(bundle.path)
    bundle.refused("not a file")
    bundle.path.unlink()
    bundle.refused("No such file")


def spoiled_blob(bundle: Bundle) -> None:
    name = next(name for name in bundle.data if name.startswith("blobs/"))
    bundle.files = {item: member(data) for item, data in bundle.data.items()}
    bundle.data[name] = b"edoc" * 1000


def spoiled_file(bundle: Bundle) -> None:
    bundle.files = {item: member(data) for item, data in bundle.data.items()}
    bundle.data["workspace/recipes/x.toml"] = b"schema = 2\n"


def unlisted(bundle: Bundle) -> None:
    bundle.files = {item: member(data) for item, data in bundle.data.items()}
    bundle.data["workspace/more"] = b""


def missing(bundle: Bundle) -> None:
    bundle.files = {item: member(data) for item, data in bundle.data.items()}
    del bundle.data["workspace/recipes/x.toml"]


def strange_entry(bundle: Bundle) -> None:
    value = encode_entry(bundle.entry)
    bundle.data[entry_name(bundle.entry.key)] = Trust(secret=b"a secret of a stranger").seal(value)


def leaving_entry(bundle: Bundle) -> None:
    value = encode_entry(bundle.entry)
    value["outputs"] = {"../../x": value["outputs"]["lib.so"]}
    bundle.data[entry_name(bundle.entry.key)] = TRUST.seal(value)


def moved_entry(bundle: Bundle) -> None:
    bundle.recipes = {"x": PackedRecipe("x", {"package": PackedStage(bundle.entry.key, is_carried=True)})}


def other_recipe(bundle: Bundle) -> None:
    bundle.recipes = {"../x": bundle.recipes["x"]}


def leaving_settings(bundle: Bundle) -> None:
    bundle.data["workspace/modelbuild.toml"] = b"schema = 1\ncache = { path = 3 }\n"


def an_output(bundle: Bundle) -> None:
    bundle.data["workspace/artifacts/x/lib.so"] = b"x"


SPOILED = (spoiled_blob, spoiled_file, unlisted, missing, strange_entry, leaving_entry, moved_entry, other_recipe, leaving_settings,
           an_output)  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILED)
def test_members_that_do_not_fit(bundle: Bundle, spoil: Callable[[Bundle], None]) -> None:
    spoil(bundle)
    bundle.write()
    bundle.refused()


def test_a_signature_made_for_something_else_is_none(bundle: Bundle) -> None:
    index = bundle.index()
    value = {"schema": 1, "index": 1, "signature": TRUST.sign(canonical(1))}
    assert CONTEXT not in canonical(value)
    for data in (
        index.replace(b"x86-64-v3", b"x86-64-v4"),
        canonical(value),
        TRUST.seal({"index": 1}),
        b"[" * 100_000,
        b"null",
    ):
        bundle.index = lambda data=data: data  # type: ignore[method-assign,misc]
        bundle.write()
        bundle.refused("bundle")


@pytest.mark.parametrize(
    ("link", "words"), [("recipes", "leads out of the workspace"), ("recipes/base", "leaves the workspace")]
)
def test_a_link_of_the_workspace_is_not_written_through(bundle: Bundle, link: str, words: str) -> None:
    (bundle.folder / "new/recipes").mkdir(parents=True)
    (bundle.folder / "new/modelbuild.toml").write_bytes(SETTINGS)
    (bundle.folder / "elsewhere").mkdir()
    if link == "recipes":
        (bundle.folder / "new/recipes").rmdir()
    (bundle.folder / "new" / link).symlink_to(bundle.folder / "elsewhere")
    bundle.data["workspace/recipes/base/y.toml"] = b"schema = 1\n"
    bundle.write()
    bundle.refused(words)
    assert not list((bundle.folder / "elsewhere").iterdir())


def test_a_full_disk_leaves_no_half_bundle(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    files = {name: member(data) for name, data in bundle.data.items()}
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="disk is full"):
        write_archive(bundle.path, bundle.index(), files, bundle.data)
    assert not list(bundle.folder.glob("*bundle*"))


def test_a_source_that_changes_while_it_is_packed(bundle: Bundle) -> None:
    files = {name: member(data) for name, data in bundle.data.items()}
    with pytest.raises(UserError, match="changed while it was packed"):
        write_archive(bundle.path, bundle.index(), files, bundle.data | {"workspace/recipes/x.toml": b"schema = 2\n"})
    assert not list(bundle.folder.glob("*bundle*"))


def test_large_files_do_not_go_through_memory(bundle: Bundle) -> None:
    source = bundle.folder / "weights"
    with source.open("wb") as file:
        file.truncate(400 * 2**20)
    from pydoit.digest import hash_file

    large = Member(hash_file(source), source.stat().st_size)
    files = {name: member(data) for name, data in bundle.data.items()} | {blob_name(large.sha256): large}
    bundle.files = files
    write_archive(bundle.path, bundle.index(), files, {**bundle.data, blob_name(large.sha256): source})
    unpack(bundle.path, bundle.folder / "new", (), unsigned=False, overwrite=False)
    assert Store(bundle.folder / "store").holds(Blob(large.sha256, large.bytes))
