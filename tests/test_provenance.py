"""Provenance beside an artifact: complete, the same for two builds, and every tampering found by doit verify-artifact."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TestWorkspace, make_workspace
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


def write_keys(folder: Path, name: str) -> tuple[Path, Path]:
    """A private and a public key in PEM."""
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    """A workspace with a signed artifact; keys lie beside it."""
    workspace = make_workspace(tmp_path_factory.mktemp("provenance"))
    private, _ = write_keys(workspace.root.parent, "team")
    write_keys(workspace.root.parent, "other")
    done = workspace.doit("build", "tiny", MODELBUILD_SIGNING_KEY=str(private))
    assert done.returncode == 0, done.stderr
    return workspace


@pytest.fixture
def artifact(built: TestWorkspace, tmp_path: Path) -> Path:
    """A copy of the artifact, outside of any workspace."""
    shutil.copytree(built.root / "artifacts/tiny", tmp_path / "tiny")
    return tmp_path / "tiny"


def check(artifact: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "doit", "verify-artifact", "tiny", *options]
    return subprocess.run(command, cwd=artifact.parent, capture_output=True, text=True, check=False)


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def test_the_statement_names_files_sources_and_tools(built: TestWorkspace) -> None:
    folder = built.root / "artifacts/tiny"
    statement = read(folder / "provenance.json")
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {item["name"] for item in statement["subject"]} == {
        "lib.so",
        "manifest.json",
        "sbom.json",
        "weights/model.safetensors",
    }
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["values"]["verify"]["samples"] == 2
    named = {item.get("uri") or item["name"] for item in definition["resolvedDependencies"]}
    assert {"models/tiny.safetensors", "recipes/parts.py", "linker", "c++", "llvm"} <= named
    assert any(name.startswith("pkg:pypi/apache-tvm@") for name in named)
    assert str(built.root) not in (folder / "provenance.json").read_text() + (folder / "sbom.json").read_text()


def test_the_bill_of_materials_has_licences(built: TestWorkspace) -> None:
    materials = read(built.root / "artifacts/tiny/sbom.json")
    assert (materials["bomFormat"], materials["specVersion"]) == ("CycloneDX", "1.6")
    components = {item["name"]: item for item in materials["components"]}
    assert components["apache-tvm"]["scope"] == "required"
    assert "licenses" in components["apache-tvm"]
    assert components["models/tiny.safetensors"]["hashes"][0]["alg"] == "SHA-256"
    assert len({item["bom-ref"] for item in materials["components"]}) == len(components)


def test_a_good_artifact_outside_a_workspace(artifact: Path, built: TestWorkspace) -> None:
    done = check(artifact)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tiny: good; tiny: ")
    assert check(artifact, "--key", str(built.root.parent / "team.pub")).stdout.startswith("tiny: good, signed by the key; ")


def flip(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / name).write_bytes(data)

    return change


def restate(folder: Path) -> None:
    """A changed library with a statement that fits it: only the signature and the manifest tell."""
    flip("lib.so")(folder)
    import hashlib

    statement = read(folder / "provenance.json")
    statement["subject"][0]["digest"]["sha256"] = hashlib.sha256((folder / "lib.so").read_bytes()).hexdigest()
    (folder / "provenance.json").write_text(json.dumps(statement))


def resign(folder: Path) -> None:
    envelope = read(folder / "provenance.dsse.json")
    envelope["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
    (folder / "provenance.dsse.json").write_text(json.dumps(envelope))


TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "library": (flip("lib.so"), "lib.so: sha256 is "),
    "weights": (flip("weights/model.safetensors"), "weights/model.safetensors: sha256 is "),
    "bill": (lambda folder: (folder / "sbom.json").write_text("{}"), "sbom.json: sha256 is "),
    "lost file": (lambda folder: (folder / "lib.so").unlink(), "lib.so: missing"),
    "stranger": (lambda folder: (folder / "weights/x.bin").touch(), "weights/x.bin: not part of the artifact"),
    "statement": (restate, "manifest.json: names another lib.so than provenance.json"),
    "signature": (resign, "provenance.dsse.json: not a signature of provenance.json by this key"),
    "no signature": (lambda folder: (folder / "provenance.dsse.json").unlink(), "provenance.dsse.json: missing"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_found(artifact: Path, built: TestWorkspace, name: str) -> None:
    change, words = TAMPERED[name]
    change(artifact)
    done = check(artifact, "--key", str(built.root.parent / "team.pub"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(line.startswith(f"tiny: {words}") for line in done.stdout.splitlines()), done.stdout


def test_wrong_keys_and_paths(artifact: Path, built: TestWorkspace) -> None:
    assert check(artifact, "--key", str(built.root.parent / "other.pub")).returncode == 1
    for options, words in ((("--key", "nowhere.pub"), "nowhere.pub: No such file"), (("elsewhere",), "elsewhere/manifest.json: No such"),
                           (("--key", str(built.root.parent / "team.pem")), "not a key in PEM")):  # fmt: skip
        done = check(artifact, *options)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert words in done.stderr


def test_a_build_without_a_key_drops_the_signature_and_changes_nothing_else(built: TestWorkspace) -> None:
    folder = built.root / "artifacts/tiny"
    before = {name: (folder / name).read_bytes() for name in ("provenance.json", "sbom.json", "provenance.dsse.json")}
    assert built.doit("build", "tiny").returncode == 0
    assert (folder / "provenance.dsse.json").read_bytes() == before["provenance.dsse.json"]  # nothing was built
    shutil.rmtree(folder)
    assert built.build()["package"] == "restored"
    assert {name: (folder / name).read_bytes() for name in ("provenance.json", "sbom.json")} == {
        name: before[name] for name in ("provenance.json", "sbom.json")
    }
    assert not (folder / "provenance.dsse.json").exists()
