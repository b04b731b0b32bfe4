"""What a hostile checkout, model, artifact or cache may try: nothing outside is read or written, nothing unnamed is run.

Hostile ONNX graphs, GGUF files, wheels, bundles, remotes and recipes have tests of their own (see docs/security.md).
"""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import TestWorkspace, make_workspace
from onnx import TensorProto, helper
from small_tokenizers import byte_level

from pydoit import datasets, importers, publish, sources
from pydoit.bundle.adopted import Adopted
from pydoit.errors import StoreError, UserError
from pydoit.importers.spec import Input, ModelSpec
from pydoit.keys import digest_of
from pydoit.models.config import read_values
from pydoit.runtime.aligned import MAX_HEADER_BYTES, map_weights
from pydoit.runtime.manifest import read_manifest
from pydoit.runtime.text.chat_template import ChatTemplate
from pydoit.runtime.text.tokenizer import Tokenizer
from pydoit.session import Options, Session
from pydoit.stages import tokenizer as tokenizer_stage
from pydoit.store import Blob, Entry, Store, decode_entry, encode_entry
from pydoit.workspace import open_workspace

SECRET = "what nobody may see"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder of the user beside the workspace."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private/key.json").write_text(SECRET)
    return tmp_path / "private"


def examined(workspace: TestWorkspace, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MODELBUILD_CACHE", str(workspace.cache))
    session = Session(open_workspace(workspace.root), Options())
    session.open(["tiny"])
    for error in session.broken.values():
        raise error
    return session.examine("tiny", "fetch")


@pytest.mark.parametrize("kind", ["file", "folder", "nested"])
def test_links_in_a_models_folder(secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    workspace = make_workspace(tmp_path)
    models = workspace.root / "models"
    (models / "inner").mkdir()
    place, target = {"file": ("tokenizer.json", "key.json"), "folder": ("more", ""), "nested": ("inner/x.json", "key.json")}[
        kind
    ]
    (models / place).symlink_to(secret / target)
    with pytest.raises(UserError, match="a link leads out of the workspace"):
        examined(workspace, monkeypatch)
    done = workspace.doit("build", "tiny", "--stages", "tokenizer")
    assert done.returncode != 0
    assert not [path for path in workspace.cache.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    monkeypatch.setenv("MODELBUILD_ROOTS", str(secret))
    assert examined(workspace, monkeypatch).is_good


def test_links_in_place_of_recipes_and_outputs(secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_workspace(tmp_path)
    os.replace(workspace.root / "recipes/tiny.toml", secret / "tiny.toml")
    (workspace.root / "recipes/tiny.toml").symlink_to(secret / "tiny.toml")
    with pytest.raises(UserError, match=r"^recipes/tiny.toml:1: file: a link leads out"):
        examined(workspace, monkeypatch)
    for name in ("artifacts", "recipes"):
        other = make_workspace(tmp_path / name)
        if name == "recipes":
            os.replace(other.root / "recipes", tmp_path / "moved")
        (other.root / name).symlink_to(secret)
        with pytest.raises(UserError, match=f"{name}: a link leads out"):
            examined(other, monkeypatch)
        done = other.doit("build", "tiny")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert sorted(os.listdir(secret)) == ["key.json", "tiny.toml"]


@pytest.mark.parametrize("place", ["", "weights"])
def test_links_in_place_of_an_artifact(secret: Path, tmp_path: Path, place: str) -> None:
    store, folder = Store(tmp_path / "store"), tmp_path / "artifacts/tiny"
    with store.scratch() as scratch:
        for name in ("lib.so", "weights/w", "manifest.json"):
            (scratch / "out" / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / "out" / name).write_bytes(b"x")
        entry = store.commit(digest_of({}), "package", {}, scratch / "out", {}, 0.0)
    (folder / place).parent.mkdir(parents=True)
    (folder / place).symlink_to(secret)
    with pytest.raises(StoreError, match="a link in an artifact's place"):
        publish.publish(store, entry, folder)
    assert os.listdir(secret) == ["key.json"]


def test_a_stage_that_leaves_a_link(secret: Path, tmp_path: Path) -> None:
    store, key = Store(tmp_path / "store"), secret / "key.json"
    mode = stat.S_IMODE(key.stat().st_mode)
    for target in (key, secret):
        with store.scratch() as scratch:
            (scratch / "out").mkdir()
            (scratch / "out/lib.so").symlink_to(target)
            with pytest.raises(StoreError, match=r"a stage made a link, 'lib.so'"):
                store.commit(digest_of({}), "compile", {}, scratch / "out", {}, 0.0)
    assert stat.S_IMODE(key.stat().st_mode) == mode
    assert not list(store.root.glob("blobs/*/*"))


NAMES = ["../x", "/x", "a/../../x", "", "a\0b", "..", "a/.."]
DIGESTS = ["../" + "a" * 61, "a" * 63, "a" * 63 + "/", "", "a" * 65]


@pytest.mark.parametrize(("name", "digest"), [*((name, "a" * 64) for name in NAMES), *(("x", digest) for digest in DIGESTS)])
def test_entries_of_the_store_and_of_bundles(tmp_path: Path, name: str, digest: str) -> None:
    value = encode_entry(Entry(digest_of({}), "compile", {}, {name: Blob(digest, 1)}))
    with pytest.raises(ValueError):
        decode_entry(digest_of({}), value)
    store = Store(tmp_path / "store")
    path = store.entry_path(digest_of({}))
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(value))
    assert store.lookup(digest_of({})) is None
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked/tiny.json").write_text(json.dumps({"schema": 1, "stages": {"compile": {"key": "k", "entry": value}}}))
    assert Adopted(tmp_path).find("tiny", "compile", "k") is None


def test_nested_json_in_the_store_is_a_miss(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.entry_path(digest_of({}))
    path.parent.mkdir(parents=True)
    path.write_text("[" * 100_000)
    assert store.lookup(digest_of({})) is None
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked/tiny.json").write_text("[" * 100_000)
    assert Adopted(tmp_path).find("tiny", "compile", "k") is None


def tensor(**values: Any) -> dict[str, Any]:
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **values}}


HEADERS: list[Any] = [
    tensor(data_offsets=[0, 2**60]), tensor(data_offsets=[-8, 0]), tensor(data_offsets=[8, 0]), tensor(data_offsets=[0]),
    tensor(data_offsets="08"), tensor(data_offsets=[0.0, 8.0]), tensor(shape=[-1]), tensor(shape=[2**31, 2**31, 2**31]),
    tensor(shape=[3]), tensor(shape="2"), tensor(shape=None), tensor(dtype="O"), tensor(dtype=["F32"]), tensor(dtype="F64"),
    {"w": 3}, {"w": {}}, [], 3, None, "x",
]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_headers_of_safetensors(tmp_path: Path, header: Any) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "w").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(ValueError):
        map_weights(tmp_path / "w")


@pytest.mark.parametrize("size", [2**63, MAX_HEADER_BYTES + 1, 100_000])
def test_lengths_and_depths_of_safetensors_headers(tmp_path: Path, size: int) -> None:
    (tmp_path / "w").write_bytes(size.to_bytes(8, "little") + b"[" * 100_000)
    with pytest.raises(ValueError):
        map_weights(tmp_path / "w")


EXTERNAL = ["../secret", "/etc/hostname", "a/../../secret", "link", "", "."]


@pytest.mark.parametrize("location", EXTERNAL)
def test_external_data_of_onnx(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(48))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a").mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    weight = TensorProto(name="w", data_type=1, dims=[3, 4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [2, 3]), ("y", [2, 4]))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", tensors[:1], tensors[1:], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    spec = ModelSpec.model_validate({"source": "onnx", "inputs": {"x": {"shape": [2, 3], "dtype": "float32"}}})
    with pytest.raises(UserError, match="no valid ONNX model"):
        importers.load(spec, folder)
    assert onnx.__version__


def test_ids_of_a_tokenizer(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    value = json.loads((tmp_path / "tokenizer.json").read_text())
    value["model"]["vocab"]["never"] = 2**32 - 2
    (tmp_path / "tokenizer.json").write_text(json.dumps(value))
    with pytest.raises(UserError, match="ids of 16,777,216 and more"):
        Tokenizer.load(tmp_path)


def test_a_nested_config_of_a_tokenizer(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match="this is no JSON"):
        Tokenizer.load(tmp_path)


TEMPLATES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.__init__.__globals__ }}", "{{ raise_exception.__globals__ }}",
    "{% include '/etc/passwd' %}", "{% import 'os' as os %}", "{{ cycler.__init__.__globals__.os }}", "{{ range(1000000000) | list }}",
    "{{ '%s' | format(strftime_now.__self__) }}", "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ messages.append(1) }}",
]  # fmt: skip


@pytest.mark.parametrize("source", TEMPLATES)
def test_chat_templates_reach_nothing(source: str) -> None:
    try:
        text = ChatTemplate(source, {}).render([{"role": "user", "content": "x"}])
    except UserError:
        return
    assert text == ""  # an attribute that the sandbox hides is undefined


def test_only_known_files_of_a_tokenizer_are_carried(tmp_path: Path) -> None:
    (tmp_path / "fetch/model").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    for name in ("tokenizer.json", "tokenization_own.py", "modeling.py", "pickle.bin"):
        (tmp_path / "fetch/model" / name).touch()
    tokenizer_stage.run(tokenizer_stage.Spec(source="transformers"), {"fetch": tmp_path / "fetch"}, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["tokenizer.json"]


def test_code_beside_a_config_is_not_run(tmp_path: Path) -> None:
    own = f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n"
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("modeling_own.py", "configuration_own.py"):
        (folder / name).write_text(own)
    auto = {"AutoConfig": "configuration_own.Config", "AutoModel": "modeling_own.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto}))
    inputs = {"input_ids": {"shape": [1, 2], "dtype": "int64"}}
    spec = ModelSpec.model_validate({"source": "transformers", "weights": "random:0", "inputs": inputs})
    with pytest.raises(UserError):
        importers.load(spec, folder)
    assert not (tmp_path / "ran").exists()


class Runs:
    """Would run when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_arrays_that_are_pickles(tmp_path: Path) -> None:
    array = np.empty(1, object)
    array[0] = Runs(tmp_path / "ran")
    np.savez(tmp_path / "x.npz", x=array)
    with pytest.raises(UserError, match=r"no \.npz file of plain arrays"):
        datasets.load(tmp_path / "x.npz", {"x": Input(shape=(1,), dtype="float32")}, 1, 0, tmp_path)
    assert not (tmp_path / "ran").exists()


def test_links_in_wheels_become_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        link = zipfile.ZipInfo("data/tokenizer.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    sources.unzip(tmp_path / "w.whl", "", tmp_path / "out")
    assert not (tmp_path / "out/data/tokenizer.json").is_symlink()
    assert (tmp_path / "out/data/tokenizer.json").read_text() == "/etc/passwd"


def test_nested_configs(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match="cannot be read"):
        read_values(tmp_path / "config.json")


@pytest.mark.parametrize("name", ["../lib.so", "/lib.so", "a/../../lib.so"])
def test_a_manifest_that_names_files_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "lib.so").write_bytes(b"x")
    (tmp_path / "artifact/a").mkdir(parents=True)
    values = {"schema": 1, "library": {"path": name, "bytes": 1}, "weights": [], "target": {}, "inputs": [], "outputs": [],
              "params": [], "entry": "main"}  # fmt: skip
    (tmp_path / "artifact/manifest.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match="outside the artifact"):
        read_manifest(tmp_path / "artifact")
