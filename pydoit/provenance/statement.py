"""An in-toto statement (v1) with a SLSA provenance predicate (v1): files, recipe, sources, toolchain, builder.

https://in-toto.io/Statement/v1, https://slsa.dev/spec/v1.0/provenance. Times and hosts are left out, so that two builds
give the same statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydoit.lockfile.entry import OURS, Entry
from pydoit.tools import CXX, LLVM, NVCC, PTXAS, PYTHON

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
PROJECT = "https://github.com/doit-modelbuild/doit-modelbuild"
PROGRAMS = frozenset({CXX, "linker", LLVM, NVCC, PTXAS, PYTHON})


def make_statement(recipe: str, key: str, entry: Entry, files: Mapping[str, str]) -> dict[str, Any]:
    """The statement about `files` (name -> sha256), packaged under the action key `key`."""
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in sorted(files.items())],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": f"{PROJECT}/build/v1",
                "externalParameters": {"recipe": recipe, "values": dict(entry.recipe)},
                "internalParameters": {"arch": entry.arch, "environment": dict(entry.environment)},
                "resolvedDependencies": [*_sources(entry), *_tools(entry)],
            },
            "runDetails": {
                "builder": {"id": PROJECT, "version": {OURS: entry.toolchain[OURS]}},
                "metadata": {"invocationId": key},
            },
        },
    }


def _sources(entry: Entry) -> Iterator[dict[str, Any]]:
    for name, value in sorted({**entry.sources, **entry.records, **entry.code}.items()):
        kind, _, digest = value.partition(":")
        yield {"uri": name, "digest": {"sha256" if kind == "sha256" else "gitCommit": digest}}


def _tools(entry: Entry) -> Iterator[dict[str, Any]]:
    for name, version in sorted(entry.toolchain.items()):
        yield (
            {"uri": package_url(name, version)} if name not in PROGRAMS else {"name": name, "annotations": {"version": version}}
        )


def package_url(name: str, version: str) -> str:
    """The package URL (purl) of a distribution."""
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{version.replace('+', '%2B')}"
