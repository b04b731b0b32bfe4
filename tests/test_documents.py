"""What is generated is up to date, and the README's commands are what CI runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import tomli

from pydoit.passes.document import markdown, svg
from pydoit.recipe import Recipe
from pydoit.schema import reference_page, schema_text

ROOT = Path(__file__).parents[1]


def test_reference_page_and_schema_are_up_to_date() -> None:
    remedy = "run `python -m pydoit.schema`"
    assert (ROOT / "docs/recipe.md").read_text(encoding="utf-8") == reference_page(), remedy
    assert (ROOT / "docs/recipe.schema.json").read_text(encoding="utf-8") == schema_text(Recipe), remedy
    assert (ROOT / "docs/passes.md").read_text(encoding="utf-8") == markdown(), remedy
    assert (ROOT / "docs/passes.svg").read_text(encoding="utf-8") == svg(), remedy


def test_every_field_is_documented() -> None:
    def undocumented(name: str, schema: dict[str, object]) -> list[str]:
        properties = schema.get("properties", {})
        assert isinstance(properties, dict)
        return [f"{name}.{field}" for field, value in properties.items() if "description" not in value]

    schema = json.loads(schema_text(Recipe))
    missing = undocumented("Recipe", schema)
    for name, definition in schema["$defs"].items():
        missing += undocumented(name, definition)
    assert not missing


def test_checked_in_recipes_satisfy_the_json_schema() -> None:
    for path in (ROOT / "recipes").glob("*.toml"):
        values = tomli.loads(path.read_text())
        Recipe.model_validate({**values, "target": {}, "extends": ["base/cpu.toml"]})


def test_ci_runs_the_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    command = re.search(r"<!-- test command -->\n```bash\n(.+)\n```", readme)
    assert command is not None
    assert "-c constraints.txt -e '.[test]'" in command[1]
    assert "README.md" in (ROOT / ".ci/run").read_text()


def test_constraints_pin_what_the_project_needs() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines()}
    wanted = [*project["dependencies"], *(item for extra in project["optional-dependencies"].values() for item in extra)]
    names = {re.split(r"[\[<>=,]", item)[0].lower() for item in wanted} - {"doit-modelbuild"}
    assert names <= pinned
