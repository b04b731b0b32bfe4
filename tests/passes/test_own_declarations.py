"""Passes of others: registered by packages, or classes of the workspace that declare themselves."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from pydoit import passes
from pydoit.errors import UserError
from pydoit.passes import registry
from pydoit.passes.info import PassInfo
from pydoit.passes.order import PARTIAL, Setting, check_order
from pydoit.passes.partial import Partial, changed_functions
from pydoit.passes.running import check_own
from pydoit.tvm_compat import relax
from tests.relax_modules import module_of, run_pass

HERE = __name__
MARK = PassInfo("Mark.", f"{HERE}:Late", {"level": 1}, requires=frozenset({"lowered"}), before={"FuseOps": "groups hide it"})


@dataclass(frozen=True)
class Late:
    """Goes with lowered operators only, and says so."""

    info: ClassVar[PassInfo] = MARK
    level: int = 1

    def __call__(self, module: Any) -> Any:
        return module


class Wrong:
    """Declares something else."""

    info = "lowered"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes `entry_points` give the points that a test wants."""

    def install(**points: str) -> None:
        made = [EntryPoint(name, value, registry.ENTRY_POINTS) for name, value in points.items()]
        monkeypatch.setattr(registry, "entry_points", lambda group: made if group == registry.ENTRY_POINTS else [])
        registry.registered.cache_clear()

    yield install
    monkeypatch.undo()
    registry.registered.cache_clear()


def test_a_package_registers_a_pass(installed: Any) -> None:
    installed(MarkLate=f"{HERE}:MARK")
    assert "MarkLate" in passes.all_passes()
    assert passes.make_pass({"name": "MarkLate", "level": 3}) == Late(3)
    assert check_order(["LegalizeOps", "MarkLate"], Setting()) == []
    assert "lowered" in check_order(["MarkLate"], Setting())[0].text
    late = ["LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR", "MarkLate"]
    assert "groups hide it" in check_order(late, Setting())[0].text
    assert passes.repair_order(late, Setting()).changes == ('move "MarkLate" before "FuseOps"',)
    with pytest.raises(UserError, match='has no option "levels"'):
        passes.check_use({"name": "MarkLate", "levels": 3})


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ({"Gone": "nowhere.at.all:INFO"}, "cannot be loaded"),
        ({"Odd": f"{HERE}:Late"}, "not PassInfo"),
        ({"FuseOps": f"{HERE}:MARK"}, "name of another pass"),
    ],
)
def test_faulty_packages_are_named(installed: Any, points: dict[str, str], words: str) -> None:
    installed(**points)
    with pytest.raises(UserError, match=words):
        passes.all_passes()


def test_properties_and_targets_must_exist() -> None:
    with pytest.raises(ValueError, match="lowerd"):
        PassInfo("x", "a:b", requires=frozenset({"lowerd"}))
    with pytest.raises(ValueError, match="npu"):
        PassInfo("x", "a:b", targets=("npu",))


def test_a_class_of_the_workspace_declares_itself() -> None:
    name = f"{HERE}:Late"
    assert passes.declared([name, "FuseOps"]) == {name: MARK}
    check_own(["LegalizeOps", name], Setting())
    with pytest.raises(UserError, match=r"passes.order\[0\]: .* operators that are lowered"):
        check_own([name, "LegalizeOps"], Setting())
    with pytest.raises(UserError, match="its attribute info is str"):
        check_own([f"{HERE}:Wrong"], Setting())
    with pytest.raises(UserError, match="cannot be made"):
        check_own([f"{HERE}:Nothing"], Setting())


def test_a_partial_pass_counts_as_the_whole_one() -> None:
    def partial(use: str) -> dict[str, Any]:
        return {"name": PARTIAL, "use": use, "functions": ["main"]}

    order = [partial("LegalizeOps"), partial("AnnotateTIROpPattern"), "FuseOps", partial("FuseTIR")]
    assert check_order(order, Setting()) == []
    assert check_order(order[1:], Setting())[0].kind == "missing"


def test_a_partial_pass_takes_the_named_functions_only() -> None:
    module = relax.transform.LegalizeOps()(module_of(lambda x: relax.op.exp(relax.op.sin(x)), {"x": (2, 3)}))
    annotated = run_pass(relax.transform.AnnotateTIROpPattern(), module)
    names = changed_functions(module, annotated)
    assert sorted(names) == ["tir_exp", "tir_sin"]
    half = run_pass(Partial("AnnotateTIROpPattern", ("tir_exp",)), module)
    assert changed_functions(module, half) == ["tir_exp"]
    assert changed_functions(module, run_pass(Partial("AnnotateTIROpPattern"), module)) == []
