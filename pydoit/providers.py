"""Who has kernels for an operator class, and what a recipe's choice means for the pass that hands operators to oneDNN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydoit import tools
from pydoit.passes.info import Entry
from pydoit.recipe import Recipe
from pydoit.toml_lines import KeyPath

OFFLOAD = "OffloadOneDnn"
"""The pass that hands operators to oneDNN."""
_LATER = "is not supported yet; remove it"
_OPERATORS = ("conv2d", "matmul")

PROVIDERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "cpu": {"conv2d": ("tvm", "onednn"), "matmul": ("tvm", "onednn")},
    "cuda": {"matmul": ("tvm", "triton"), "attention": ("triton",)},
}
"""Target -> operator class -> who has kernels for it; TVM where nothing is said."""


def has_onednn() -> bool:
    """Whether oneDNN is installed."""
    return tools.version(tools.ONEDNN) != tools.ABSENT


def may_use_onednn(recipe: Recipe) -> bool:
    """Whether a recipe's library may call oneDNN."""
    chosen = (recipe.kernels.conv2d, recipe.kernels.matmul)
    return recipe.target.kind == "cpu" and not recipe.model.is_language and has_onednn() and chosen != ("tvm", "tvm")


def faults(recipe: Recipe, order: Sequence[Entry]) -> Iterator[tuple[KeyPath, str]]:
    """Choices of [kernels] and [target] precision that nobody serves; `order` is the recipe's, a preset written out."""
    kind, is_language = recipe.target.kind, recipe.model.is_language
    for operator, choice in recipe.kernels:
        known = PROVIDERS[kind].get(operator, ("tvm",)) if kind != "cpu" or not is_language else ("tvm",)
        if choice not in ("auto", *known):
            names = ", ".join(f'"{name}"' for name in known)
            yield ("kernels", operator), f'"{choice}" {_LATER} on {kind}; use "auto" or {names}'
    if is_language:
        return
    precision = recipe.target.precision
    wanted = [(("kernels", operator), "onednn") for operator in _OPERATORS if getattr(recipe.kernels, operator) == "onednn"]
    if precision == "bfloat16":
        wanted.append((("target", "precision"), "bfloat16"))
    elif precision != "float32":
        yield ("target", "precision"), f'"{precision}" {_LATER}; use "float32" or "bfloat16"'
    has_pass = any((use if isinstance(use, str) else use["name"]) == OFFLOAD for use in order)
    for path, value in wanted:
        if not has_onednn():
            yield path, f'"{value}" needs oneDNN, which is not installed; {tools.ONEDNN_REMEDY}'
        elif not has_pass:
            yield (
                path,
                f'"{value}" needs the pass {OFFLOAD}, which the order lacks; add it before PackWeights or take preset O2',
            )


def with_choices(recipe: Recipe, order: Sequence[Entry]) -> list[Entry]:
    """The order in which OffloadOneDnn, where it is named without options, has those that the recipe says."""
    usable = may_use_onednn(recipe)
    options = {name: getattr(recipe.kernels, name) if usable else "tvm" for name in _OPERATORS}
    use: Entry = {"name": OFFLOAD, **options, "precision": recipe.target.precision}
    return [use if entry == OFFLOAD else entry for entry in order]


def follows_records(recipe: Recipe) -> bool:
    """Whether tuning records choose a provider of its."""
    return may_use_onednn(recipe) and "auto" in (recipe.kernels.conv2d, recipe.kernels.matmul)
