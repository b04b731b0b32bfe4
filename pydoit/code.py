"""Digests of source code: a stage's own modules and a user's factory, with everything they import from here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pydoit.digest import hash_bytes, walk

PACKAGE = Path(__file__).resolve().parent


class CodeDigests:
    """Digest of a module with its imports, followed only inside one root (the package or the workspace).

    A package's `__init__` stands for all files below it, since registries import by name.
    """

    def __init__(self, root: Path, package: str = "") -> None:
        self.root = root
        self.package = package
        self._direct: dict[Path, tuple[str, frozenset[Path]]] = {}

    def digest(self, module: str) -> dict[str, str]:
        """sha256 by file name, for `module` and what it imports below the root; empty when it lies elsewhere."""
        waiting, seen = list(self._files(module)), dict[Path, str]()
        while waiting:
            path = waiting.pop()
            if path in seen:
                continue
            seen[path], imports = self._read(path)
            waiting.extend(imports)
        return {path.relative_to(self.root).as_posix(): seen[path] for path in sorted(seen)}

    def _read(self, path: Path) -> tuple[str, frozenset[Path]]:
        if path not in self._direct:
            data = path.read_bytes()
            imports: set[Path] = set()
            if path.suffix == ".py":
                for name in _imports(data, self._module_name(path), path.name == "__init__.py"):
                    imports.update(self._files(name))
            self._direct[path] = (hash_bytes(data), frozenset(imports - {path}))
        return self._direct[path]

    def _module_name(self, path: Path) -> str:
        parts = [*path.relative_to(self.root).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        return ".".join([self.package, *parts]) if self.package else ".".join(parts)

    def _files(self, module: str) -> list[Path]:
        if self.package:
            if module.partition(".")[0] != self.package:
                return []
            module = module.partition(".")[2]
        elif module.partition(".")[0] == "pydoit":  # ours, wherever it lies: the stage's own code covers it
            return []
        base = self.root.joinpath(*module.split(".")) if module else self.root
        if module and base.with_suffix(".py").is_file():
            return [base.with_suffix(".py")]
        if (base / "__init__.py").is_file():
            if base in (self.root, self.root / "stages") and self.package:
                return [base / "__init__.py"]
            found = (place / name for place, _, names in walk(base) for name in names)
            return sorted(path for path in found if path.is_file() and path.suffix != ".pyc")
        return []


def with_packages(root: Path, names: Iterable[str]) -> set[str]:
    """The files of modules below `root`, with the `__init__.py` of every package that they lie in."""
    found = set(names)
    parents = {parent / "__init__.py" for name in found for parent in Path(name).parents}
    return found | {path.as_posix() for path in parents if (root / path).is_file()}


_STATEMENT = re.compile(
    rb"(?:^|[;:])[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n;]*)|import[ \t]+([^\n;]+))", re.MULTILINE
)


def _imports(data: bytes, module: str, is_package: bool) -> list[str]:
    """Absolute names that a source file imports, at any depth; a name may be a module or an object in one.

    A scan for import statements instead of a parse, since a build that has nothing to do looks at every file; what it
    finds in a string or comment beyond them only makes the digest cover more.
    """
    names: list[str] = []
    for source, objects, modules in _STATEMENT.findall(re.sub(rb"#[^\n]*|\\\n", b" ", data)):
        if modules:
            names += [item.split()[0].decode() for item in modules.split(b",") if item.split()]
            continue
        base = source.lstrip(b".").decode()
        level = len(source) - len(base)
        if level:
            parts = module.split(".")
            kept = parts[: len(parts) - level + (1 if is_package else 0)]
            base = ".".join([*kept, base] if base else kept)
        words = [item.split()[0].decode() for item in objects.strip(b"() \t\n").split(b",") if item.split()]
        names += [base, *(f"{base}.{word}" for word in words)]
    return names


@cache
def own_code() -> CodeDigests:
    """Digests of this package's own modules."""
    return CodeDigests(PACKAGE, "pydoit")
