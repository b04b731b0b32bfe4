"""`module:name` in recipes."""

from __future__ import annotations

import pytest

from pydoit.errors import UserError
from pydoit.objects import load_object


def test_an_object_is_found() -> None:
    assert load_object("math:sqrt", "model.factory")(9) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("math", "not of the form module:name"),
        ("no_such_module:f", "cannot import 'no_such_module'"),
        ("math:sqrtt", "did you mean 'sqrt'?"),
    ],
)
def test_a_wrong_name_says_what_to_do(text: str, message: str) -> None:
    with pytest.raises(UserError, match=r"^model.factory: ") as caught:
        load_object(text, "model.factory")
    assert message in str(caught.value)
