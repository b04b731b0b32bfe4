"""Orders of passes as they are applied: repetition to a fixed point, the log."""

from __future__ import annotations

from typing import Any

import pytest

from pydoit.errors import UserError
from pydoit.passes.running import run_passes
from tests.relax_modules import module_of


class CountDown:
    """Lowers an attribute of `main` to zero, one a time."""

    def __call__(self, module: Any) -> Any:
        left = int((module["main"].attrs or {}).get("left", 3))
        if left:
            module["main"] = module["main"].with_attr("left", left - 1)
        return module


def net() -> Any:
    from pydoit.tvm_compat import relax

    return module_of(lambda x: relax.op.exp(x), {"x": (4,)})


@pytest.mark.parametrize(("repeat", "iterations", "left"), [(1, 1, 2), (2, 2, 1), (3, 3, 0), (10, 4, 0)])
def test_a_repeated_pass_ends_where_it_changes_nothing(repeat: int, iterations: int, left: int) -> None:
    use = {"name": "tests.passes.test_running:CountDown", "repeat": repeat}
    module, log, seconds = run_passes([use], net())
    assert int(module["main"].attrs["left"]) == left
    assert (log[0]["iterations"], log[0]["changed"], log[0]["options"], len(seconds)) == (iterations, True, {}, 1)


def test_a_repeat_that_is_no_count_is_refused() -> None:
    with pytest.raises(UserError, match="repeat = 'twice' must be a whole number"):
        run_passes([{"name": "tests.passes.test_running:CountDown", "repeat": "twice"}], net())
