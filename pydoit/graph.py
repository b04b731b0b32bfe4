"""A checked recipe -> its stages as nodes: what each reads, and the values of the recipe that belong to its key."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit import language, passes, providers, sources, target, tools
from pydoit.errors import UserError
from pydoit.nodes import Node
from pydoit.recipe import Recipe
from pydoit.recipes import LoadedRecipe
from pydoit.stages import LANGUAGE_STAGES, ORDER, STAGES, implementation, load_stage
from pydoit.workspace import Workspace


def make_nodes(workspace: Workspace, loaded: LoadedRecipe, native: str = "") -> dict[str, Node]:
    """All stages of a recipe in their order; `native` stands for `arch = "native"` where it is given."""
    recipe = loaded.recipe
    arch = native if native and recipe.target.arch == "native" else recipe.target.arch
    resolved = target.ResolvedTarget(
        kind=recipe.target.kind,
        arch=target.resolve_arch(recipe.target.kind, arch),
        threads=recipe.target.threads,
    )
    files = _files(workspace, recipe)
    nodes = {}
    for stage in _stages(recipe):
        chosen = implementation(stage, is_language=recipe.model.is_language)
        module = load_stage(chosen)
        spec = module.Spec.model_validate(_spec(stage, loaded, resolved, files)).model_dump(mode="json")
        more_tools = module.tools(spec) if hasattr(module, "tools") else ()
        nodes[stage] = Node(
            recipe=loaded.name,
            stage=stage,
            implementation="" if chosen == stage else chosen,
            spec=spec,
            reads=_reads(stage, recipe, module),
            optional=tuple(getattr(module, "OPTIONAL", ())),
            tools=tuple(
                dict.fromkeys((*module.TOOLS, *more_tools, *_plugins(stage, recipe), *_owners(workspace, stage, recipe)))
            ),
            after=("verify", "profile") if stage == "package" else (),
            modules=_modules(stage, recipe),
            files=_files_of(stage, recipe, files),
            local=_local(workspace, recipe) if stage == "fetch" else None,
            hardware=_hardware(resolved) if stage == "profile" else {},
        )
    return nodes


def _stages(recipe: Recipe) -> tuple[str, ...]:
    is_compensated = recipe.quantization is not None and recipe.quantization.method == "gptq"
    return ORDER if recipe.model.is_language and is_compensated else STAGES


def _hardware(resolved: target.ResolvedTarget) -> dict[str, str]:
    """What measured times depend on; stores are shared between machines."""
    gpu = {"gpu": tools.gpu_names()} if resolved.kind == "cuda" else {}
    return {"cpu": tools.cpu_name(), **gpu}


def _spec(stage: str, loaded: LoadedRecipe, resolved: target.ResolvedTarget, files: Mapping[str, Path]) -> dict[str, Any]:
    """The values of a recipe that a stage reads, as its `Spec` takes them."""
    recipe = loaded.recipe
    model = recipe.model.model_dump(mode="json")
    where = {"target": resolved.model_dump(mode="json")}
    if stage == "fetch":
        remote = recipe.model.path is not None and not sources.is_local(recipe.model.path)
        reference = {key: model[key] for key in ("path", "revision", "sha256")} if remote else {}
        return {**reference, "packages": model["packages"]}
    if stage == "tokenizer":
        return {"source": model["source"]}
    if recipe.model.is_language and stage in LANGUAGE_STAGES:
        return language.stage_values(stage, recipe, where["target"], _passes(recipe))
    if stage == "import":
        elsewhere = ("path", "revision", "sha256", "packages", "config", "kv_cache")
        return {key: value for key, value in model.items() if key not in elsewhere}
    if stage == "optimize":
        chosen = {"instrument": recipe.passes.instrument, "check": recipe.passes.check}
        needed = {"inputs": model["inputs"]} if recipe.passes.check else {}
        return {"passes": _passes(recipe), **where, **chosen, **needed, "onednn": providers.may_use_onednn(recipe)}
    if stage == "tune":
        tune = recipe.tune.model_dump(mode="json")
        searching = recipe.tune.on_miss == "tune"
        return {
            "on_miss": tune["on_miss"],
            "trials": tune["trials"] if searching else None,
            "budget_seconds": tune["budget"] if searching else None,
            **where,
        }
    compiled: dict[str, dict[str, Any]] = {"compile": {**where, "onednn": providers.may_use_onednn(recipe)}, "weights": where}
    if stage in compiled:
        return compiled[stage]
    if stage == "verify":
        own = recipe.verify.model_dump(
            mode="json", exclude={"dataset": True, "language": True, "tolerance": set(language.METRICS)}
        )
        return {**own, "dataset": _dataset(recipe), "model": _spec("import", loaded, resolved, files), **where}
    if stage == "profile":
        profile = recipe.profile.model_dump(mode="json")
        return {**profile, "inputs": model["inputs"], "dims": model["dims"], "seed": recipe.verify.seed, **where}
    return {"recipe": loaded.name, **where}


def _dataset(recipe: Recipe) -> str | None:
    """A file reaches the stage as its input "dataset" and the key by its digest, so its path is not in the spec."""
    dataset = recipe.verify.dataset
    return dataset if dataset is None or ":" in dataset else "file"


def _passes(recipe: Recipe) -> list[Any]:
    return providers.with_choices(recipe, passes.order_of(recipe))


def _reads(stage: str, recipe: Recipe, module: Any) -> dict[str, tuple[str, ...]]:
    """What the stage reads upstream; a config of the workspace and seeded weights need no file of the model."""
    reads = {name: tuple(patterns) for name, patterns in module.READS.items()}
    if not recipe.model.is_language:
        if stage == "optimize" and recipe.passes.check:
            reads["import"] = (*reads["import"], "params.safetensors")
        return reads
    without = (stage == "import" and recipe.model.config) or (stage in ("weights", "verify") and recipe.model.weights)
    if stage == "quantize" and recipe.model.weights:
        reads["fetch"], without = ("model/config.json",), recipe.model.config
    if without or recipe.model.path is None:
        reads.pop("fetch", None)
    return {name: patterns for name, patterns in reads.items() if name in _stages(recipe)}


def _files(workspace: Workspace, recipe: Recipe) -> dict[str, Path]:
    named = {"records": recipe.tune.records, "config": recipe.model.config}
    if recipe.verify.language.text and ":" not in recipe.verify.language.text:
        named["text"] = recipe.verify.language.text
    if recipe.quantization and recipe.quantization.calibration and ":" not in recipe.quantization.calibration:
        named["calibration"] = recipe.quantization.calibration
    if recipe.verify.dataset and ":" not in recipe.verify.dataset:
        named["dataset"] = recipe.verify.dataset
    found = {}
    for name, relative in named.items():
        path = workspace.inside(relative) if relative else None
        if path is not None and path.is_file():
            found[name] = path
    return found


def _files_of(stage: str, recipe: Recipe, files: Mapping[str, Path]) -> dict[str, Path]:
    # Records choose who computes a language model's products on a GPU, hence what it is made of.
    imported = ("config", "records") if recipe.model.is_language and recipe.target.kind == "cuda" else ("config",)
    wanted = {
        "import": imported,
        "optimize": ("records",) if providers.follows_records(recipe) else (),
        "tune": ("records",),
        "quantize": ("calibration", "config"),
        "verify": ("dataset", "text", "config"),
    }.get(stage, ())
    return {name: files[name] for name in wanted if name in files}


def _plugins(stage: str, recipe: Recipe) -> tuple[str, ...]:
    """Distributions that the passes of the order come from, where they are not ours."""
    if stage != "optimize":
        return ()
    found = [passes.find_pass(use.name) for use in recipe.passes.order or () if ":" not in use.name]
    return tuple(dict.fromkeys(info.package for info in found if info is not None and info.package))


def _owners(workspace: Workspace, stage: str, recipe: Recipe) -> tuple[str, ...]:
    """Distributions of named modules that do not lie in the workspace, whose source is in the key."""
    tops = {name.partition(".")[0] for name in _modules(stage, recipe)} - {"pydoit"}
    foreign = [top for top in sorted(tops) if not any((workspace.root / name).exists() for name in (top, f"{top}.py"))]
    if not foreign:
        return ()
    known = importlib.metadata.packages_distributions()
    return tuple(owner for top in foreign for owner in sorted(set(known.get(top, ()))))


def _modules(stage: str, recipe: Recipe) -> tuple[str, ...]:
    names: list[str] = []
    if stage in ("import", "verify") and recipe.model.factory:
        names.append(recipe.model.factory)
    if stage == "verify":
        names += [name for name in (recipe.verify.dataset, recipe.verify.language.text) if name and ":" in name]
    if stage == "quantize" and recipe.quantization and ":" in (recipe.quantization.calibration or ""):
        names.append(str(recipe.quantization.calibration))
    if stage == "optimize":
        names += [use.name for use in recipe.passes.order or () if ":" in use.name]
    return tuple(name.partition(":")[0] for name in names)


def _local(workspace: Workspace, recipe: Recipe) -> Path | None:
    path = recipe.model.path
    if path is None or not sources.is_local(path):
        return None
    inside = workspace.inside(path)
    if inside is None:
        raise UserError(f"{path!r} leaves the workspace; keep the model inside it")
    return inside
