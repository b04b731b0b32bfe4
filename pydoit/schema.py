"""The JSON schema and docs/recipe.md, generated from the recipe models and the texts beneath their fields."""

from __future__ import annotations

import ast
import inspect
import json
import typing
from typing import Any

from pydantic import BaseModel

from pydoit import recipe, workspace_file


def schema_text(model: type[BaseModel]) -> str:
    """The JSON schema of a model (draft 2020-12) with descriptions, as text."""
    schema = model.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    definitions = {**schema.get("$defs", {}), model.__name__: schema}
    documents = field_documents()
    for name, definition in definitions.items():
        for field, text in documents.get(name, {}).items():
            if field in definition.get("properties", {}):
                definition["properties"][field]["description"] = text
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def field_documents() -> dict[str, dict[str, str]]:
    """Class -> field (by alias) -> the string beneath it in the source."""
    found: dict[str, dict[str, str]] = {}
    for module in (recipe, workspace_file):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = _beneath_fields(node)
    return found


def _beneath_fields(node: ast.ClassDef) -> dict[str, str]:
    texts: dict[str, str] = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            value = following.value if isinstance(following, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                texts[statement.target.id.rstrip("_")] = " ".join(value.value.split())
    return texts


def reference_page() -> str:
    """docs/recipe.md: every section and field with type, default and meaning."""
    lines = [
        "# Recipe reference",
        "",
        "Generated from `pydoit/recipe.py` by `python -m pydoit.schema`; a test fails when this page is behind.",
        "",
        "Paths are relative to the workspace, `extends` to the file that says it. `doit schema` prints the JSON schema;",
        "with `#:schema recipe.schema.json` in its first line a recipe is checked in the editor.",
    ]
    sections = (
        ("Recipe", recipe.Recipe), ("[model]", recipe.Model), ("[model.inputs.NAME]", recipe.Input),
        ("[model.dims]", recipe.Dim), ("[[model.packages]]", recipe.Package), ("[target]", recipe.Target),
        ("[passes]", recipe.Passes), ("An element of order", recipe.PassUse), ("[quantization]", recipe.Quantization),
        ("[kernels]", recipe.Kernels), ("[tune]", recipe.Tune), ("[verify]", recipe.Verify),
        ("[verify.tolerance]", recipe.Tolerance), ("[profile]", recipe.Profile), ("[[gate]]", recipe.Gate),
        ("modelbuild.toml", workspace_file.WorkspaceFile), ("modelbuild.toml: [cache]", workspace_file.Cache),
        ("modelbuild.toml: [report]", workspace_file.Report),
        ("modelbuild.toml: [executor]", workspace_file.Executor),
    )  # fmt: skip
    documents = field_documents()
    for title, model in sections:
        lines += ["", f"## {title}", "", (model.__doc__ or "").strip().splitlines()[0], ""]
        lines += _table(model, documents[model.__name__])
    return "\n".join(lines) + "\n"


def _table(model: type[BaseModel], documents: dict[str, str]) -> list[str]:
    properties = model.model_json_schema(by_alias=True).get("properties", {})
    required = {info.alias or name for name, info in model.model_fields.items() if info.is_required()}
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, info in model.model_fields.items():
        key = info.alias or name
        default = "required" if key in required else _default(info.get_default(call_default_factory=True))
        rows.append(f"| `{key}` | {_type(info.annotation, properties.get(key, {}))} | {default} | {documents.get(key, '')} |")
    return rows


def _default(value: Any) -> str:
    if value is None or value in ((), {}, ""):
        return ""
    if isinstance(value, BaseModel):
        return "its defaults"
    return f"`{json.dumps(value)}`"


def _type(annotation: Any, schema: dict[str, Any]) -> str:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    if hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{json.dumps(item)}`" for item in arguments)
    if origin in (tuple, list):
        return f"list of {_type(arguments[0], {})}"
    if origin is dict:
        return f"table of {_type(arguments[1], {})}"
    if arguments:
        return " or ".join(_type(item, {}) for item in arguments if item is not type(None))
    names = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    return "table" if _is_model(annotation) else names.get(annotation, "value")


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


if __name__ == "__main__":
    import sys
    from pathlib import Path

    from pydoit.passes import document

    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs/recipe.md").write_text(reference_page(), encoding="utf-8")
    (root / "docs/passes.md").write_text(document.markdown(), encoding="utf-8")
    (root / "docs/passes.svg").write_text(document.svg(), encoding="utf-8")
    (root / "docs/recipe.schema.json").write_text(schema_text(recipe.Recipe), encoding="utf-8")
