"""The line scan against texts with every kind of TOML value."""

from __future__ import annotations

import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from pydoit.toml_lines import key_lines

TEXT = '''\
# comment
a = 1
b.c = "x # no comment"
"quoted key" = 'literal'

[t]
multi = """
one \\""" two
"""
list = [
  1, # one
  { x = 2, y = [3,
    4] },
]
[[arr]]
k = 1
[[arr]]
k = 2
[arr.sub]
deep = 'x'
[t.u."v.w"]
z = 1979-05-27T07:32:00Z
'''


def test_lines_of_all_kinds_of_keys() -> None:
    tomli.loads(TEXT)
    lines = key_lines(TEXT)
    expected = {
        ("a",): 2, ("b", "c"): 3, ("quoted key",): 4, ("t",): 6, ("t", "multi"): 7, ("t", "list"): 10, ("t", "list", 0): 11,
        ("t", "list", 1): 12, ("t", "list", 1, "x"): 12, ("t", "list", 1, "y", 1): 13, ("arr", 0): 15, ("arr", 0, "k"): 16,
        ("arr", 1, "k"): 18, ("arr", 1, "sub", "deep"): 20, ("t", "u", "v.w", "z"): 22,
    }  # fmt: skip
    assert {path: lines[path] for path in expected} == expected


def test_windows_line_ends() -> None:
    assert key_lines("a = 1\r\n[b]\r\nc = 2\r\n")[("b", "c")] == 3


KEYS = st.text("abcdefgh_-0123456789", min_size=1, max_size=8)
VALUES = st.recursive(
    st.one_of(st.integers(-5, 5), st.booleans(), st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_every_key_of_a_written_document_is_found(document: dict[str, object]) -> None:
    import tomlkit

    text = tomlkit.dumps(document)
    lines = key_lines(text)
    written = text.split("\n")
    for key in document:
        assert key in written[lines[(key,)] - 1]
