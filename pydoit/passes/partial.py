"""Partial: take a pass's result for some functions of a module only, to find the function in which a pass goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydoit.passes.info import Entry


@dataclass(frozen=True)
class Partial:
    """Apply `use`, then put back the functions that are not named, as they were before it.

    Sound only where each function means the same before and after the pass, which holds of passes that rewrite functions
    one by one. A function that the pass made is there; one that it removed comes back if a function that is put back may
    call it.
    """

    use: Entry
    """The pass."""
    functions: tuple[str, ...] = ()
    """Names of the functions whose new form is taken."""

    def __call__(self, module: Any) -> Any:
        """Return the mixed module."""
        from pydoit.passes import make_pass
        from pydoit.tvm_compat import IRModule

        before = dict(module.functions.items())
        after = make_pass(self.use)(IRModule(dict(before), attrs=module.attrs))
        kept = {name.name_hint: function for name, function in before.items() if name.name_hint not in self.functions}
        mixed = {name: kept.pop(name.name_hint, function) for name, function in after.functions.items()}
        removed = {name: function for name, function in before.items() if name.name_hint in kept}
        return IRModule({**mixed, **removed}, attrs=after.attrs)


def changed_functions(before: Any, after: Any) -> list[str]:
    """Names of the functions that are in both modules and differ, in their order."""
    from pydoit.tvm_compat import structural_equal

    old: Mapping[str, Any] = {name.name_hint: function for name, function in before.functions_items()}
    return [
        name.name_hint
        for name, function in after.functions_items()
        if name.name_hint in old and not structural_equal(old[name.name_hint], function, map_free_vars=True)
    ]
