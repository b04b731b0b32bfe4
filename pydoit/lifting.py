"""Splits an optimized module into `main` and the `transform` of its weights, and names the transformed weights."""

from __future__ import annotations

from typing import Any

LIFTED = "main_transform_params"
"""Name that TVM's LiftTransformParams gives to the function that it makes."""


def mark_inputs(module: Any, count: int) -> Any:
    """Tell `main`'s first `count` parameters, the user's inputs, from the weights that follow."""
    main = module["main"]
    if main.attrs is not None and "num_input" in main.attrs:
        return module
    module.update_func(module.get_global_var("main"), main.with_attr("num_input", count))
    return module


def split(module: Any) -> tuple[Any, Any]:
    """Return a module of `main` and one of `transform`, each with the functions that it calls.

    The second is empty when no pass lifted anything: then the imported parameters are the weights.
    """
    from pydoit.tvm_compat import IRModule, relax

    names = {name.name_hint for name in module.get_global_vars()}
    main = relax.transform.DeadCodeElimination(["main"])(module)
    if LIFTED not in names:
        return main, IRModule({})
    lifted = dict(module.functions.items())
    function = lifted.pop(module.get_global_var(LIFTED)).with_attr("global_symbol", "transform")
    lifted.pop(module.get_global_var("main"))
    renamed = IRModule(lifted)
    renamed["transform"] = function
    return _without(main, LIFTED), relax.transform.DeadCodeElimination(["transform"])(renamed)


def describe_weights(main: Any, transform: Any, params: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return name, shape and dtype of each weight that `main` takes after the user's inputs.

    A weight that is a parameter of the model keeps its name; one computed from others is called after the first of
    them, with `.packed` behind it.
    """
    function = main["main"]
    variables = list(function.params)[int(function.attrs["num_input"]) :]
    shapes = [([int(size) for size in var.ty.shape], str(var.ty.dtype)) for var in variables]
    names = _output_names(transform, params) if len(transform.functions) else [param["name"] for param in params]
    unique: dict[str, int] = {}
    weights = []
    for name, (shape, dtype) in zip(names, shapes, strict=True):
        unique[name] = unique.get(name, 0) + 1
        suffix = f".{unique[name]}" if unique[name] > 1 else ""
        weights.append({"name": name + suffix, "shape": shape, "dtype": dtype})
    return weights


def _output_names(transform: Any, params: list[dict[str, Any]]) -> list[str]:
    """Name the elements of the tuple that `transform` returns by the parameters that they are made of."""
    from pydoit.tvm_compat import relax

    function = transform["transform"]
    bound = {
        binding.var: binding.value for block in function.body.blocks for binding in block.bindings
    }  # fmt: skip
    sources: dict[Any, frozenset[int]] = {}

    def read(expr: Any) -> frozenset[int]:
        if isinstance(expr, relax.TupleGetItem) and expr.tuple_value.same_as(function.params[0]):
            return frozenset({int(expr.index)})
        if isinstance(expr, relax.Var):
            if expr not in sources:
                sources[expr] = read(bound[expr]) if expr in bound else frozenset()
            return sources[expr]
        parts = getattr(expr, "args", None) or getattr(expr, "fields", None) or ()
        return frozenset().union(*(read(part) for part in parts))

    def follow(expr: Any) -> Any:
        while isinstance(expr, relax.Var) and expr in bound:
            expr = bound[expr]
        return expr

    result = follow(function.body.body)
    if result.same_as(function.params[0]):  # nothing is transformed
        return [param["name"] for param in params]
    names = []
    for number, element in enumerate(result.fields):
        direct = follow(element)
        if isinstance(direct, relax.TupleGetItem):
            names.append(params[int(direct.index)]["name"])
            continue
        used = read(element)
        names.append(f"{params[min(used)]['name']}.packed" if used else f"constant.{number}")
    return names


def _without(module: Any, name: str) -> Any:
    """Return the module without a function that dead code elimination keeps because it is public."""
    from pydoit.tvm_compat import IRModule, relax

    functions = {key: value for key, value in module.functions.items() if key.name_hint != name}
    return relax.transform.DeadCodeElimination(["main"])(IRModule(functions, attrs=module.attrs))
