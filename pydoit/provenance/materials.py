"""A CycloneDX 1.6 bill of materials: the model, and what the library is made by and runs with, with licences."""

from __future__ import annotations

import importlib.metadata
import uuid
from collections.abc import Iterator
from typing import Any

from pydoit.keys import digest_of
from pydoit.lockfile.entry import Entry
from pydoit.provenance.statement import PROGRAMS, PROJECT, package_url
from pydoit.tools import ABSENT

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, PROJECT)
RUNTIME = frozenset({"apache-tvm", "apache-tvm-ffi"})
"""What an artifact needs to run; the rest made it."""


def make_materials(recipe: str, entry: Entry) -> dict[str, Any]:
    """The document; the same for the same entry."""
    components = [*_models(entry), *_tools(entry)]
    identity = uuid.uuid5(NAMESPACE, digest_of([recipe, components]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{identity}",
        "version": 1,
        "metadata": {"component": {"type": "machine-learning-model", "bom-ref": recipe, "name": recipe}},
        "components": components,
    }


def _models(entry: Entry) -> Iterator[dict[str, Any]]:
    for name, value in sorted(entry.sources.items()):
        kind, _, digest = value.partition(":")
        component: dict[str, Any] = {"type": "data", "bom-ref": name, "name": name}
        if kind == "sha256":
            yield {**component, "hashes": [{"alg": "SHA-256", "content": digest}]}
        else:
            yield {**component, "type": "machine-learning-model", "version": digest}


def _tools(entry: Entry) -> Iterator[dict[str, Any]]:
    for name, version in sorted(entry.toolchain.items()):
        if version == ABSENT:
            continue
        scope = "required" if name in RUNTIME else "excluded"
        if name in PROGRAMS:
            yield {"type": "application", "bom-ref": name, "name": name, "version": version, "scope": scope}
            continue
        url = package_url(name, version)
        component = {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url, "scope": scope}
        yield {**component, **_licences(name)}


def _licences(name: str) -> dict[str, Any]:
    """What the distribution's metadata say: an SPDX expression, else the names in its classifiers or licence field."""
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return {}
    expressions = metadata.get_all("License-Expression") or []
    if expressions:
        return {"licenses": [{"expression": expressions[0]}]}
    classifiers = [line for line in metadata.get_all("Classifier") or [] if line.startswith("License ::")]
    written = [text.strip().splitlines()[0] for text in metadata.get_all("License") or [] if text.strip()]
    names = [line.rpartition(" :: ")[2] for line in classifiers] or written
    return {"licenses": [{"license": {"name": item}} for item in names]} if names else {}
