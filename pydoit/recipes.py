"""A recipe's merged values -> its checked `Recipe`, and refusal by name of what is not supported yet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from pydoit import language, passes, providers, sources, target
from pydoit.errors import ModelBuildError, RecipeError
from pydoit.loading import Document
from pydoit.nearest import nearest
from pydoit.recipe import Dim, Input, Recipe
from pydoit.toml_lines import KeyPath
from pydoit.validation import dotted, faults_of
from pydoit.workspace import Workspace

Fault = tuple[KeyPath, str]


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe that can be built, under the name that the user addresses it by."""

    name: str
    recipe: Recipe
    document: Document


def check_document(workspace: Workspace, address: str, document: Document) -> LoadedRecipe:
    """Validate the merged values of a recipe; every fault is reported at once, a line each."""
    try:
        recipe = Recipe.model_validate(document.values)
    except ValidationError as error:
        raise RecipeError(*faults_of(error, Recipe, document.where)) from None
    faults = list(unsupported(recipe)) or list(inconsistent(recipe, workspace))
    if faults:
        raise RecipeError(*(f"{document.where(path)}: {dotted(path)}: {text}" for path, text in faults))
    return LoadedRecipe(address, recipe, document)


LATER = "is not supported yet; remove it"


def unsupported(recipe: Recipe) -> Iterator[Fault]:
    """Features of the schema that this version does not have; refused by name, never ignored."""
    other = not recipe.model.is_language
    quantization = recipe.quantization.scheme if recipe.quantization is not None else ""
    refusals: tuple[tuple[bool, KeyPath, str], ...] = (
        (other and recipe.target.kind == "cuda", ("target", "kind"), f'target: cuda {LATER}; use kind = "cpu"'),
        (other and bool(quantization), ("quantization", "scheme"), f"quantization: {quantization} {LATER}"),
    )
    yield from ((path, text) for applies, path, text in refusals if applies)
    for metric in sorted(language.METRICS):
        if other and getattr(recipe.verify.tolerance, metric) is not None:
            yield ("verify", "tolerance", metric), "goes with language models only; remove it"
    yield from providers.faults(recipe, passes.order_of(recipe))
    for index, gate in enumerate(recipe.gate):
        if gate.max_regress is not None and gate.metric != "profile.latency_ms.median":
            yield ("gate", index, "max_regress"), "goes with profile.latency_ms.median; use min or max"
        if gate.max_regress is None and "against" in gate.model_fields_set:
            yield ("gate", index, "against"), "goes with max_regress; remove it"


def inconsistent(recipe: Recipe, workspace: Workspace) -> Iterator[Fault]:
    """What single fields cannot show: contradictions, missing files, unknown passes and targets."""
    if recipe.model.is_language:
        yield from language.faults(recipe)
    else:
        yield from _input_faults(recipe)
    yield from _model_faults(recipe)
    yield from _file_faults(recipe, workspace)
    yield from _pass_faults(recipe)
    try:
        target.resolve_arch(recipe.target.kind, recipe.target.arch)
    except ModelBuildError as error:
        yield ("target", "arch"), str(error)


def _model_faults(recipe: Recipe) -> Iterator[Fault]:
    model, reference = recipe.model, recipe.verify.reference
    is_script = model.source == "torchscript"
    is_torch, is_onnx, source = model.source == "torch", model.source == "onnx", model.source
    rules: tuple[tuple[bool, KeyPath, str], ...] = (
        (is_torch and model.factory is None, ("model", "factory"),
         'is missing; name the callable that makes the module, "package.module:callable"'),
        (not is_torch and model.factory is not None, ("model", "factory"),
         f'does not go with source = "{source}"; remove it or set source = "torch"'),
        (not is_torch and model.path is None and not model.is_language, ("model", "path"),
         f'is missing; source = "{source}" needs one'),
        (is_script and not model.trusted, ("model", "trusted"),
         "a TorchScript file is a program; set it to true if you trust its author"),
        (not is_script and model.trusted, ("model", "trusted"),
         f'goes with source = "torchscript" only; source = "{source}" runs no program of the file; remove it'),
        ((is_onnx or is_script) and model.weights is not None, ("model", "weights"),
         "random weights need an architecture from torch or transformers; remove it"),
        (model.config is not None and not model.is_language, ("model", "config"),
         "goes with language models only; remove it, or add [model.kv_cache]"),
        (model.calibrate_batch_norm is not None and model.weights is None, ("model", "calibrate_batch_norm"),
         'goes with weights = "random:SEED" only; remove it'),
        (not is_onnx and reference == "onnxruntime", ("verify", "reference"),
         'onnxruntime is the reference of ONNX models; use "torch"'),
        (is_onnx and reference == "torch", ("verify", "reference"),
         'an ONNX model has no torch reference; use "onnxruntime"'),
    )  # fmt: skip
    yield from ((path, text) for applies, path, text in rules if applies)
    for fault in itertools.islice(sources.reference_faults(model.path, model.revision, model.sha256), 1):
        yield ("model", fault.key), fault.message
    for index, package in enumerate(model.packages):
        for fault in sources.package_faults(package.path):
            yield ("model", "packages", index, fault.key), fault.message


def _input_faults(recipe: Recipe) -> Iterator[Fault]:
    model = recipe.model
    if not model.inputs:
        yield ("model", "inputs"), "is missing; declare each input as [model.inputs.NAME] with shape and dtype"
    for name in model.constants:
        if name in model.inputs:
            yield ("model", "constants", name), f"{name!r} is also an input; keep one of the two"
    for name, item in model.inputs.items():
        for axis, extent in enumerate(item.shape):
            if isinstance(extent, str) and extent not in model.dims:
                text = f"the dimension {extent!r} has no bounds; write a whole number, or add [model.dims.{extent}] with max"
                yield ("model", "inputs", name, "shape", axis), text
        yield from _size_fault(name, item, model.dims)
    yield from _dim_faults(recipe)


def _dim_faults(recipe: Recipe) -> Iterator[Fault]:
    used = {extent for item in recipe.model.inputs.values() for extent in item.shape}
    for name, dim in recipe.model.dims.items():
        if dim.min > dim.max:
            yield ("model", "dims", name), f"min {dim.min} is above max {dim.max}; swap them"
        elif dim.min == dim.max:
            yield ("model", "dims", name), f"min and max are both {dim.max}; write that number in the shapes instead"
        elif name not in used:
            yield ("model", "dims", name), f"no input has the dimension {name!r}; remove it, or use it in a shape"
    for name, extents in recipe.profile.shapes.items():
        bounds = recipe.model.dims.get(name)
        if bounds is None:
            yield ("profile", "shapes", name), f"[model.dims] has no {name!r}; {nearest(name, tuple(recipe.model.dims))}"
            continue
        for index, extent in enumerate(extents):
            if not bounds.min <= extent <= bounds.max:
                text = f"{extent} is not within {bounds.min}..{bounds.max} of [model.dims.{name}]; choose another"
                yield ("profile", "shapes", name, index), text


def _size_fault(name: str, item: Input, dims: Mapping[str, Dim]) -> Iterator[Fault]:
    elements = 1
    for extent in item.shape:
        largest = dims[extent].max if isinstance(extent, str) and extent in dims else extent
        elements *= largest if isinstance(largest, int) else 1
    if elements > 2**31 - 1:
        yield ("model", "inputs", name, "shape"), f"{elements:,} elements are too many; at most {2**31 - 1:,}"


def _file_faults(recipe: Recipe, workspace: Workspace) -> Iterator[Fault]:
    if recipe.model.path and sources.is_local(recipe.model.path):
        yield from _missing(workspace, ("model", "path"), recipe.model.path)
    if recipe.model.config:
        yield from _missing(workspace, ("model", "config"), recipe.model.config)
    dataset, text = recipe.verify.dataset, recipe.verify.language.text
    calibration = recipe.quantization.calibration if recipe.quantization is not None else None
    texts: tuple[tuple[KeyPath, str | None], ...] = (
        (("verify", "dataset"), dataset),
        (("verify", "language", "text"), text),
        (("quantization", "calibration"), calibration if recipe.model.is_language else None),
    )
    for key, named in texts:
        if named and ":" not in named:
            yield from _missing(workspace, key, named)
    if recipe.tune.records and workspace.inside(recipe.tune.records) is None:
        yield ("tune", "records"), f"{recipe.tune.records!r} leaves the workspace; name a file inside it"
    elif recipe.tune.records and (workspace.root / recipe.tune.records).is_dir():
        yield ("tune", "records"), f"{recipe.tune.records!r} is a folder; name a .json file"
    for path, name in ((("model", "factory"), recipe.model.factory), *texts):
        if name and ":" in name and not name.partition(":")[0].replace("_", "a").replace(".", "a").isalnum():
            yield path, f"{name!r} is malformed; write package.module:callable"


def _missing(workspace: Workspace, key: KeyPath, relative: str) -> Iterator[Fault]:
    path = workspace.inside(relative)
    if path is None:
        yield key, f"{relative!r} leaves the workspace; keep it inside (MODELBUILD_ROOTS allows links to other folders)"
    elif not path.exists():
        yield key, f"there is no {relative!r}; paths are relative to the workspace"


def _pass_faults(recipe: Recipe) -> Iterator[Fault]:
    """The first fault of an order, with the smallest change that makes the whole order legal."""
    order = [use.entry for use in recipe.passes.order or ()]
    setting = passes.Setting(recipe.target.kind, recipe.model.is_language)
    faults = passes.check_order(order, setting) if order else []
    if faults:
        repair = passes.repair_order(order, setting)
        place: KeyPath = (faults[0].index,) if faults[0].index < len(order) else ()
        remedy = ", ".join(repair.changes)
        yield ("passes", "order", *place), f"{faults[0].text}; {remedy} (doit passes check RECIPE --fix writes it)"
