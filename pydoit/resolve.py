"""A recipe's address -> what a build needs of it, remembered by content so that a build with nothing to do is instant.

Checking a recipe takes pydantic and every stage's module; neither is loaded while the recipe's merged values, our own
code and the machine's CPU level are those of the last time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydoit import tools
from pydoit.code import own_code
from pydoit.errors import ModelBuildError, UserError
from pydoit.history import write_atomically
from pydoit.keys import canonical, digest_of, parse_json
from pydoit.loading import Document, open_document
from pydoit.nodes import Node
from pydoit.workspace import NAME, Workspace


@dataclass(frozen=True)
class Resolved:
    """A checked recipe, as plain data."""

    name: str
    description: str
    target: Mapping[str, Any]
    gates: Sequence[Mapping[str, Any]]
    nodes: Mapping[str, Node]
    records: str | None = None
    """The tuning records file, relative to the workspace."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The checked recipe itself: nested tables without empty values, the preset's passes written out."""


@dataclass(frozen=True)
class Pins:
    """What the lock file settles before a recipe is resolved."""

    native: str = ""
    """What `arch = "native"` stands for; empty: this machine's."""
    source: Mapping[str, Any] | None = None
    """`path`, `revision` and `sha256` of the model, in place of the recipe's."""


NO_PINS = Pins()
SOURCE_KEYS = ("path", "revision", "sha256")


def resolve(workspace: Workspace, address: str, sets: Sequence[str] = (), pins: Pins = NO_PINS) -> Resolved:
    """Load `NAME` or `NAME@VARIANT`; `RecipeError` with a line for each fault."""
    document = read_document(workspace, address, sets)
    _pin_source(document, pins)
    remembered = workspace.state / "resolved" / f"{address}.json"
    token = _token(workspace, document, pins.native)
    found = _recall(remembered, token)
    if found is not None:
        return found
    resolved = _check(workspace, address, document, pins.native)
    with contextlib.suppress(ModelBuildError):  # not to remember it only costs time
        write_atomically(remembered, canonical({"token": token, "resolved": _encode(resolved)}))
    return resolved


def describe(workspace: Workspace, address: str) -> str:
    """The recipe's one line for lists; the file is read, its values are not checked."""
    return str(read_document(workspace, address).values.get("description", ""))


def read_document(workspace: Workspace, address: str, sets: Sequence[str] = ()) -> Document:
    """The merged values of `NAME` or `NAME@VARIANT` with the files that they come from."""
    name, at, variant = (address, "", "") if address in workspace.recipe_files else address.partition("@")
    if at and not NAME.fullmatch(variant):
        raise UserError(f"{address!r} is not a recipe; write NAME or NAME@VARIANT")
    return open_document(workspace.recipe_file(name), workspace.root, variant if at else None, sets)


def _pin_source(document: Document, pins: Pins) -> None:
    model = document.values.get("model")
    if pins.source is not None and isinstance(model, dict):
        own = {key: value for key, value in model.items() if key not in SOURCE_KEYS}
        document.values = {**document.values, "model": {**own, **pins.source}}


def _check(workspace: Workspace, address: str, document: Document, native: str) -> Resolved:
    from pydoit.graph import make_nodes
    from pydoit.recipes import check_document

    loaded = check_document(workspace, address, document)
    nodes = make_nodes(workspace, loaded, native)
    recipe = loaded.recipe
    target = {**nodes["compile"].spec["target"], "precision": recipe.target.precision}
    gates = [gate.model_dump(mode="json", exclude_none=True) for gate in recipe.gate]
    values = recipe.model_dump(mode="json", exclude={"schema_", "extends", "description", "variant"})
    values["passes"]["order"] = nodes["optimize"].spec["passes"]
    return Resolved(address, recipe.description, target, gates, nodes, recipe.tune.records, _pruned(values))


def _pruned(value: Any) -> Any:
    """The value without nulls and empty tables and lists, at any depth."""
    if isinstance(value, Mapping):
        items = {key: _pruned(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item is not None and item not in ({}, [])}
    if isinstance(value, (list, tuple)):
        return [_pruned(item) for item in value]
    return value


def _token(workspace: Workspace, document: Document, native: str) -> str:
    """Identity of everything that the check looks at."""
    return digest_of({
        "values": repr(document.values),
        "code": own_code().digest("pydoit.resolve"),
        "cpu": tools.cpu_flags_digest(),
        "native": native,
        "hardware": tools.cpu_name(),
        "onednn": tools.version(tools.ONEDNN),
        "root": str(workspace.root),
        "present": [(workspace.root / path).exists() for path in _paths(document.values)],
    })  # fmt: skip


def _paths(values: Mapping[str, Any]) -> list[str]:
    """Paths of the workspace that a recipe names and whose presence the check looks at."""
    named = [values.get(section, {}).get(key) if isinstance(values.get(section), dict) else None
             for section, key in (("model", "path"), ("model", "config"), ("verify", "dataset"),
                                  ("tune", "records"), ("quantization", "calibration"))]  # fmt: skip
    return [path for path in named if isinstance(path, str) and "\0" not in path]


def _encode(resolved: Resolved) -> dict[str, Any]:
    value = asdict(resolved)
    for node in value["nodes"].values():
        node["files"] = {name: str(path) for name, path in node["files"].items()}
        node["local"] = None if node["local"] is None else str(node["local"])
    return value


def _recall(path: Path, token: str) -> Resolved | None:
    try:
        found = parse_json(path.read_bytes())
        if found["token"] != token:
            return None
        value = found["resolved"]
        value["nodes"] = {stage: _decode(node) for stage, node in value["nodes"].items()}
        return Resolved(**value)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _decode(value: dict[str, Any]) -> Node:
    for key in ("tools", "after", "modules", "optional"):
        value[key] = tuple(value[key])
    value["reads"] = {stage: tuple(patterns) for stage, patterns in value["reads"].items()}
    value["files"] = {name: Path(path) for name, path in value["files"].items()}
    value["local"] = None if value["local"] is None else Path(value["local"])
    return Node(**value)
