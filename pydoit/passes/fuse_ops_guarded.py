"""FuseOpsGuarded: group operators like FuseOps, but split the groups that grow beyond limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydoit.passes.matching import is_call, is_tensor
from pydoit.tvm_compat import IRModule, PyExprMutator, ir, mutator, relax, tirx, tvm

PRIMITIVE = "Primitive"
"""Attribute of the functions that FuseOps makes of groups."""
MAX_NAME = 80
"""Characters in the name of a part."""


@dataclass(frozen=True)
class FuseOpsGuarded:
    """Run FuseOps, then cut groups that exceed a limit into parts that do not.

    FuseOps adds to a group whatever can be added. A function of very many inputs or operators spills registers, and one
    whose rows do not fit in the cache reads them from memory once for each operator, as the operators alone would. A
    group is cut where the fewest values cross, of such places nearest to the middle; a part of one operator is a call.
    """

    max_inputs: int = 16
    """Tensors that a group reads."""
    max_operators: int = 32
    """Operators in a group."""
    max_working_set: int = 1024
    """KiB of one row, which is the last axis, of each tensor that a group reads or writes; symbolic extents count as 1."""

    def __call__(self, module: Any) -> Any:
        """Return the module with groups of operators within the limits."""
        module = relax.transform.FuseOps()(module)
        groups = {name: function for name, function in module.functions_items() if _is_group(function)}
        excessive = {name for name, group in groups.items() if _can_split(group) and not self.holds_for(_operators(group))}
        if not excessive:
            return module
        for name, function in module.functions_items():
            if isinstance(function, relax.Function) and name not in groups:
                splitter = _Splitter(module, self, excessive)
                rewritten = splitter.visit_expr(function)
                splitter.builder_.update_func(name, rewritten)
                module = splitter.builder_.get()
        kept = {name: function for name, function in module.functions_items() if name not in excessive}
        return IRModule(kept, attrs=module.attrs)

    def holds_for(self, operators: Sequence[Any]) -> bool:
        """Whether bindings of operators may be one group."""
        if len(operators) > self.max_operators:
            return False
        return len(_inputs(operators)) <= self.max_inputs and _row_bytes(operators) <= self.max_working_set * 1024


def _is_group(function: Any) -> bool:
    attrs = getattr(function, "attrs", None)
    return isinstance(function, relax.Function) and attrs is not None and bool(attrs.get(PRIMITIVE, False))


def _operators(group: Any) -> list[Any]:
    return [binding for block in group.body.blocks for binding in block.bindings]


def _can_split(group: Any) -> bool:
    """Whether a group is made of calls of TIR functions on tensors alone."""
    known = all(is_tensor(param) or isinstance(param.ty, relax.ShapeType) for param in group.params)
    return known and all(is_call(binding.value, "call_tir") and is_tensor(binding.var) for binding in _operators(group))


def _reads(binding: Any) -> Iterator[Any]:
    """The tensors that an operator reads, in the order of its arguments."""
    for operand in binding.value.args[1].fields:
        if isinstance(operand, relax.Var | ir.GenericConst) and isinstance(operand.ty, relax.TensorType):
            yield operand


def _inputs(operators: Sequence[Any]) -> list[Any]:
    """The tensors that operators read but do not compute."""
    computed = {binding.var for binding in operators}
    return list(dict.fromkeys(read for binding in operators for read in _reads(binding) if read not in computed))


def _row_bytes(operators: Sequence[Any]) -> int:
    total = 0
    for tensor in (*_inputs(operators), *(binding.var for binding in operators)):
        columns = list(tensor.ty.shape)[-1:] if is_tensor(tensor) else []
        elements = int(columns[0]) if columns and isinstance(columns[0], tirx.IntImm) else 1
        total += elements * ((tvm.DataType(str(tensor.ty.dtype)).bits + 7) // 8)
    return total


def _split(operators: Sequence[Any], results: Sequence[Any], limits: FuseOpsGuarded) -> list[list[Any]]:
    """Cut operators, in the order of computation, into parts within the limits; `results` are read by others."""
    if len(operators) < 2 or limits.holds_for(operators):
        return [list(operators)]

    def cost(place: int) -> tuple[bool, int, int]:
        before, after = operators[:place], operators[place:]
        too_much = not (limits.holds_for(before) and limits.holds_for(after))
        return too_much, len(_crossing(before, after, results)), abs(len(before) - len(after))

    place = min(range(1, len(operators)), key=cost)
    before, after = operators[:place], operators[place:]
    return [*_split(before, _crossing(before, after, results), limits), *_split(after, results, limits)]


def _crossing(before: Sequence[Any], after: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """The variables of the first part that the second reads, or that are results."""
    read = {*_inputs(after), *results}
    return [binding.var for binding in before if binding.var in read]


@mutator
class _Splitter(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, limits: FuseOpsGuarded, excessive: set[Any]) -> None:
        super().__init__(module)
        self._module = module
        self._limits = limits
        self._excessive = excessive

    def visit_call_(self, call: Any) -> Any:
        """Replace the call of a group beyond the limits by calls of its parts."""
        call = super().visit_call_(call)
        if call.op not in self._excessive:
            return call
        group = self._module[call.op]
        body = group.body.body
        results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
        parts = _split(_operators(group), results, self._limits)
        values = _Values(group, call)
        for number, part in enumerate(parts):
            later = [binding for following in parts[number + 1 :] for binding in following]
            self._emit_part(part, _crossing(part, later, results), values)
        return relax.Tuple([values.of[r] for r in results]) if isinstance(body, relax.Tuple) else values.of[body]

    def _emit_part(self, part: list[Any], given: list[Any], values: _Values) -> None:
        """Compute a part and remember what it gives."""
        if len(part) == 1:
            values.add(part[0].var, self.builder_.emit(values.call_of(part[0].var)))
            return
        tensors = [read for read in _inputs(part) if isinstance(read, relax.Var)]
        function, symbols = _function_of(part, tensors, given)
        arguments = [values.of[tensor] for tensor in tensors]
        if symbols:
            arguments.append(relax.ShapeExpr([values.symbols[symbol] for symbol in symbols]))
        name = "_".join(["fused", *(binding.value.args[0].name_hint for binding in part)])[:MAX_NAME]
        value = self.builder_.emit(relax.Call(self.builder_.add_func(function, name), arguments))
        for place, variable in enumerate(given):
            values.add(variable, value if len(given) == 1 else self.builder_.emit(relax.TupleGetItem(value, place)))


class _Values:
    """What the variables and symbols of a group are where it is called."""

    def __init__(self, group: Any, call: Any) -> None:
        self.of: dict[Any, Any] = dict(zip(group.params, call.args, strict=True))
        self.symbols: dict[Any, Any] = {}
        for param, argument in self.of.items():
            pairs = zip(_extents(param), _extents(argument), strict=True)
            self.symbols.update((inside, outside) for inside, outside in pairs if isinstance(inside, tirx.Var))
        bound = _operators(group.bind_params(dict(self.of)))
        self._bound = {own.var: other for own, other in zip(_operators(group), bound, strict=True)}

    def add(self, variable: Any, value: Any) -> None:
        """Remember the value of a variable of the group."""
        self.of[variable] = self.of[self._bound[variable].var] = value

    def call_of(self, variable: Any) -> Any:
        """The operator that computes a variable, on values."""
        return _renamed(self._bound[variable].value, self.of)


def _extents(expr: Any) -> list[Any]:
    """The extents of a tensor or the values of a shape."""
    return list(expr.ty.values) if isinstance(expr.ty, relax.ShapeType) else list(expr.ty.shape)


def _function_of(part: list[Any], tensors: list[Any], given: list[Any]) -> tuple[Any, list[Any]]:
    """A group of its own, and the symbols that it takes after its tensors because their shapes do not tell them."""
    symbols = _untold_symbols(part, tensors)
    params = [relax.Var(f"x{number}", tensor.ty) for number, tensor in enumerate(tensors)]
    names = dict(zip(tensors, params, strict=True))
    if symbols:
        params.append(relax.Var("tir_vars", relax.ShapeType(symbols)))
    builder = relax.BlockBuilder()
    with builder.function("group", params, attrs={PRIMITIVE: True}, private=True):
        with builder.dataflow():
            for binding in part:
                value = _renamed(binding.value, names)
                is_result = len(given) == 1 and binding.var.same_as(given[0])
                names[binding.var] = builder.emit_output(value) if is_result else builder.emit(value)
            result = names[given[0]]
            if len(given) > 1:
                result = builder.emit_output(relax.Tuple([names[variable] for variable in given]))
        builder.emit_func_output(result)
    # A symbol may be defined in one function only.
    return relax.utils.copy_with_new_vars(builder.get()["group"]), symbols


def _untold_symbols(part: list[Any], tensors: list[Any]) -> list[Any]:
    """Symbols that the operators of a part use, without those that are an extent of a tensor that it takes."""
    expressions = [extent for tensor in tensors for extent in tensor.ty.shape]
    told = {extent for extent in expressions if isinstance(extent, tirx.Var)}
    for binding in part:
        expressions += list(binding.var.ty.shape)
        expressions += [operand for operand in binding.value.args[1].fields if not isinstance(operand.ty, relax.TensorType)]
    used = (symbol for expression in expressions for symbol in tirx.analysis.undefined_vars(expression))
    return [symbol for symbol in dict.fromkeys(used) if symbol not in told]


def _renamed(call: Any, names: dict[Any, Any]) -> Any:
    """The call of a TIR function on other variables."""
    function, operands, *more = call.args
    renamed = [names.get(operand, operand) if isinstance(operand, relax.Var) else operand for operand in operands.fields]
    return relax.Call(call.op, [function, relax.Tuple(renamed), *more], call.attrs, call.ty_args)
