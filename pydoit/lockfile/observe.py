"""What is here: an opened recipe -> its lock entry, without building anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydoit import __version__, sources, tools
from pydoit.code import CodeDigests, own_code
from pydoit.keys import digest_of
from pydoit.lockfile.entry import OURS, Artifact, Entry
from pydoit.nodes import Node
from pydoit.publish import MANIFEST
from pydoit.results import Result
from pydoit.session import Session
from pydoit.stages import module_name


def observe(session: Session, recipe: str) -> Entry:
    """The entry of a loaded recipe; the artifact is that of an earlier build with exactly these keys, if there was one."""
    return observe_inputs(session, recipe, _artifact(session, recipe))


def observe_inputs(session: Session, recipe: str, artifact: Mapping[str, Artifact] | None = None) -> Entry:
    """The entry but for its artifact."""
    resolved = session.loaded[recipe]
    nodes = resolved.nodes
    values = dict(resolved.values)
    native = kind_of(values) == "cpu" and values["target"].get("arch") == "native"
    return Entry(
        recipe=values,
        arch=str(resolved.target["arch"]) if native else "",
        sources=dict(_sources(session, recipe, values)),
        records=_digests(session, [_files(node, records=True) for node in nodes.values()]),
        code=_code(session, nodes),
        toolchain=toolchain(nodes),
        environment=tools.keyed_environment(),
        artifact=artifact or {},
    )


def kind_of(recipe: Mapping[str, Any]) -> str:
    """The target's kind."""
    return str(recipe["target"].get("kind", "cpu"))


def _sources(session: Session, recipe: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    model = values["model"]
    path = model.get("path")
    fetched = session.examine(recipe, "fetch")
    files = fetched.files if fetched is not None and fetched.is_good else {}
    models = {name.removeprefix("model/"): file.sha256 for name, file in files.items() if name.startswith("model/")}
    if path is not None and sources.is_local(path):
        is_file = (session.workspace.root / path).is_file()
        yield from ((path if is_file else f"{path.rstrip('/')}/{name}", f"sha256:{sha256}") for name, sha256 in models.items())
    elif path is not None:
        yield path, f"revision:{model['revision']}" if "revision" in model else f"sha256:{model['sha256']}"
        if path.startswith("hf:"):
            yield from ((f"{path}/{name}", f"sha256:{sha256}") for name, sha256 in models.items())
    for package in model.get("packages", ()):
        yield package["path"], f"sha256:{package['sha256']}"
    nodes = session.loaded[recipe].nodes
    yield from _digests(session, [_files(node, records=False) for node in nodes.values()]).items()


def _files(node: Node, *, records: bool) -> list[Path]:
    return [path for name, path in node.files.items() if (name == "records") == records]


def _digests(session: Session, groups: Iterable[Iterable[Path]]) -> dict[str, str]:
    root, stats = session.workspace.root.resolve(), session.store.stats
    paths = sorted({path for files in groups for path in files})
    return {_relative(path, root): f"sha256:{stats.digest(path)}" for path in paths}


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _code(session: Session, nodes: Mapping[str, Node]) -> dict[str, str]:
    digests = CodeDigests(session.workspace.root)
    modules = sorted({module for node in nodes.values() for module in node.modules})
    return {name: f"sha256:{sha256}" for module in modules for name, sha256 in digests.digest(module).items()}


def toolchain(nodes: Mapping[str, Node]) -> dict[str, str]:
    """Versions of all tools in the action keys of a recipe, of the linker and of LLVM, and ours."""
    versions = {name: tools.version(name) for node in nodes.values() for name in node.tools}
    if tools.CXX in versions:
        versions[tools.CXX], _, versions["linker"] = versions[tools.CXX].partition("; ")
    modules = sorted({node.module for node in nodes.values()})
    ours = digest_of([own_code().digest(module_name(name)) for name in modules])
    return {**versions, tools.LLVM: tools.llvm_version(), OURS: f"{__version__}+code.{ours[:16]}"}


def _artifact(session: Session, recipe: str) -> dict[str, Artifact]:
    package = session.examine(recipe, "package")
    if package is None or not package.is_good:
        return {}
    return packaged(package, is_partial=session.builder.is_partial(session.node(recipe, "package")))


def packaged(package: Result, *, is_partial: bool) -> dict[str, Artifact]:
    """The files of a package; the manifest of a partial one names what is deferred here, so it is left out."""
    files = {name: file for name, file in package.files.items() if not (is_partial and name == MANIFEST)}
    return {name: Artifact(file.sha256, file.path.stat().st_size) for name, file in files.items()}
