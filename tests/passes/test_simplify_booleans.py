"""SimplifyBooleans: what changes nothing goes, what a cast or a broadcast changes stays, results are the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_modules import blocks_of, evaluate, operators, run_pass

from pydoit.passes.simplify_booleans import SimplifyBooleans
from pydoit.tvm_compat import relax, tirx

Build = Callable[..., Any]
TRUE, FALSE = (relax.const(np.full((3, 4), value)) for value in (True, False))
MIXED = relax.const(np.eye(3, 4, dtype="bool"))


def module_of(build: Build, *inputs: tuple[tuple[Any, ...], str]) -> Any:
    """A module whose `main` computes `build` of inputs of these shapes and dtypes."""
    variables = [relax.Var(f"x{number}", relax.TensorType(*given)) for number, given in enumerate(inputs)]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(build(*variables))
        builder.emit_func_output(result)
    return builder.get()


MASK, OTHER = ((3, 4), "bool"), ((3, 4), "float32")


def flipped(x: Any) -> Any:
    return relax.op.logical_not(x)


def cast(x: Any, *dtypes: str) -> Any:
    for dtype in dtypes:
        x = relax.op.astype(x, dtype)
    return x


def constant(value: float, dtype: str) -> Any:
    return relax.const(value, dtype)


SIMPLER: dict[str, tuple[Build, list[tuple[tuple[int, ...], str]], list[str]]] = {
    "double negation": (lambda x: flipped(flipped(x)), [MASK], []),
    "triple negation": (lambda x: flipped(flipped(flipped(x))), [MASK], ["logical_not"]),
    "and true": (lambda x: relax.op.logical_and(x, TRUE), [MASK], []),
    "true and": (lambda x: relax.op.logical_and(TRUE, x), [MASK], []),
    "and true by an operator": (
        lambda x: relax.op.logical_and(x, relax.op.full((3, 4), constant(True, "bool"))), [MASK], []
    ),
    "and ones": (lambda x: relax.op.logical_and(x, relax.op.ones((3, 4), "bool")), [MASK], []),
    "and one true": (lambda x: relax.op.logical_and(x, constant(True, "bool")), [MASK], []),
    "and false": (lambda x: relax.op.logical_and(x, FALSE), [MASK], []),
    "or false": (lambda x: relax.op.logical_or(x, FALSE), [MASK], []),
    "or true": (lambda x: relax.op.logical_or(TRUE, x), [MASK], []),
    "where true": (lambda x, y: relax.op.where(TRUE, x, y), [OTHER, OTHER], []),
    "where false": (lambda x, y: relax.op.where(FALSE, x, y), [OTHER, OTHER], []),
    "where true, repeated": (lambda x, y: relax.op.where(TRUE, x, y), [((4,), "float32"), OTHER], ["broadcast_to"]),
    "cast to itself": (lambda x: cast(x, "bool"), [MASK], []),
    "round trip of integers": (lambda x: cast(x, "int32", "bool"), [MASK], []),
    "round trip of floats": (lambda x: cast(x, "float32", "bool"), [MASK], []),
    "round trip of three": (lambda x: cast(x, "int8", "float32", "bool"), [MASK], []),
    "wider": (lambda x: cast(x, "float64", "float32"), [OTHER], []),
    "wider, elsewhere": (lambda x: cast(x, "int64", "float32"), [((3, 4), "int32")], ["astype"]),
    "equal to 0": (lambda x: relax.op.equal(cast(x, "int64"), constant(0, "int64")), [MASK], ["logical_not"]),
    "not equal to 0": (lambda x: relax.op.not_equal(cast(x, "int64"), constant(0, "int64")), [MASK], []),
    "equal to 1.0": (lambda x: relax.op.equal(constant(1, "float32"), cast(x, "float32")), [MASK], []),
    "not of not equal": (
        lambda x: flipped(relax.op.equal(cast(x, "int64"), constant(0, "int64"))), [MASK], []
    ),
}  # fmt: skip

KEPT: dict[str, tuple[Build, list[tuple[tuple[int, ...], str]]]] = {
    "and mixed": (lambda x: relax.op.logical_and(x, MIXED), [MASK]),
    "and true, repeated": (lambda x: relax.op.logical_and(x, TRUE), [((4,), "bool")]),
    "and false, one value": (lambda x: relax.op.logical_and(x, constant(False, "bool")), [MASK]),
    "where mixed": (lambda x, y: relax.op.where(MIXED, x, y), [OTHER, OTHER]),
    "bitwise not": (lambda x: relax.op.bitwise_not(relax.op.bitwise_not(x)), [((3, 4), "int32")]),
    "narrower": (lambda x: cast(x, "int8", "int32"), [((3, 4), "int32")]),
    "rounded": (lambda x: cast(x, "int32", "float32"), [OTHER]),
    "truth of a number": (lambda x: cast(x, "bool", "int32"), [((3, 4), "int32")]),
    "signs": (lambda x: cast(x, "uint8", "int32"), [((3, 4), "int8")]),
    "rounded float": (lambda x: cast(x, "float16", "float32"), [OTHER]),
    "equal to 2": (lambda x: relax.op.equal(cast(x, "int64"), constant(2, "int64")), [MASK]),
    "number equal to 0": (lambda x: relax.op.equal(cast(x, "int64"), constant(0, "int64")), [((3, 4), "int32")]),
    "equal to 0, repeated": (
        lambda x: relax.op.equal(cast(x, "int64"), relax.const(np.zeros((3, 4), "int64"))), [((4,), "bool")]
    ),
}  # fmt: skip


def values(inputs: list[tuple[tuple[int, ...], str]]) -> list[Any]:
    random = np.random.default_rng(3)
    return [
        random.random(shape) < 0.5 if dtype == "bool" else (random.standard_normal(shape) * 3).astype(dtype)
        for shape, dtype in inputs
    ]


@pytest.mark.parametrize("name", SIMPLER)
def test_simpler_and_equal(name: str) -> None:
    build, inputs, left = SIMPLER[name]
    module = module_of(build, *inputs)
    simplified = run_pass(SimplifyBooleans(), module)
    assert operators(simplified) == left
    given = values(inputs)
    np.testing.assert_array_equal(evaluate(simplified, *given), evaluate(module, *given))


def test_equal_to_false_which_tvm_cannot_compile() -> None:
    simplified = run_pass(SimplifyBooleans(), module_of(lambda x: relax.op.equal(x, FALSE), MASK))
    assert operators(simplified) == ["logical_not"]
    given = values([MASK])[0]
    np.testing.assert_array_equal(evaluate(simplified, given), ~given)


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    build, inputs = KEPT[name]
    module = module_of(build, *inputs)
    assert operators(run_pass(SimplifyBooleans(), module)) == operators(module)


def test_a_second_run_changes_nothing() -> None:
    module = module_of(lambda x: flipped(flipped(relax.op.logical_and(cast(x, "int8", "bool"), MIXED))), MASK)
    once = run_pass(SimplifyBooleans(), module)
    assert operators(once) == ["logical_and"]
    assert operators(run_pass(SimplifyBooleans(), once)) == ["logical_and"]


def test_a_value_that_others_read_stays_for_them() -> None:
    def build(x: Any) -> Any:
        builder = relax.BlockBuilder.current()
        inverted = builder.emit(flipped(x))
        return relax.op.where(flipped(inverted), cast(inverted, "float32"), constant(2.0, "float32"))

    module = module_of(build, MASK)
    simplified = run_pass(SimplifyBooleans(), module)
    assert operators(simplified) == ["logical_not", "astype", "where"]
    given = values([MASK])
    np.testing.assert_array_equal(evaluate(simplified, *given), evaluate(module, *given))


def test_symbolic_extents() -> None:
    length = tirx.Var("length", "int64")
    true = lambda: relax.op.full((length, 4), constant(True, "bool"))  # noqa: E731
    module = module_of(lambda x: flipped(flipped(relax.op.logical_and(x, true()))), ((length, 4), "bool"))
    simplified = run_pass(SimplifyBooleans(), module)
    assert operators(simplified) == []
    other = tirx.Var("other", "int64")
    kept = module_of(
        lambda x, y: relax.op.logical_and(x, relax.op.full((other, 4), constant(True, "bool"))),
        ((length, 4), "bool"), ((other, 4), "float32"),
    )  # fmt: skip
    assert "logical_and" in operators(run_pass(SimplifyBooleans(), kept))


def test_several_dataflow_blocks() -> None:
    def turned(*values: Any) -> Any:
        return flipped(flipped(relax.op.greater(values[-1], constant(0, "float32"))))

    module = blocks_of({"x": (3, 4)}, lambda x: turned(x), lambda x, truth: cast(turned(x), "float32"))
    simplified = run_pass(SimplifyBooleans(), module)
    assert operators(simplified) == ["greater", "negative", "greater", "astype"]


def test_what_another_block_hides_is_not_read() -> None:
    module = blocks_of(
        {"x": (3, 4)},
        lambda x: flipped(relax.op.greater(x, constant(0, "float32"))),
        lambda x, hidden: flipped(hidden),
    )
    simplified = run_pass(SimplifyBooleans(), module)
    relax.analysis.well_formed(simplified)
    assert operators(simplified) == ["greater", "logical_not", "negative", "logical_not"]
