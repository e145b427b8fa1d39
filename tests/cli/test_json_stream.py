"""Documents that are made while they are written: the same as if they had been made before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aerobee.cli.store.json_stream import Members, collected, write_json

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


def made_later(value: Any) -> Any:
    """The same with every object and array made only when it is gone through."""
    if isinstance(value, dict):
        return Members((name, made_later(member)) for name, member in value.items())
    if isinstance(value, list):
        return iter([made_later(item) for item in value])
    return value


def written(value: Any) -> str:
    parts: list[str] = []
    write_json(value, parts.append)
    return "".join(parts)


@given(PLAIN)
def test_what_is_made_later_is_written_as_what_is_there(value: Any) -> None:
    assert json.loads(written(value)) == value
    assert json.loads(written(made_later(value))) == value
    assert collected(made_later(value)) == value


def test_nothing_is_made_before_it_is_its_turn() -> None:
    order: list[str] = []

    def members() -> Iterator[tuple[str, Any]]:
        yield "first", 1
        order.append("made")
        yield "second", 2

    write_json(Members(members()), order.append)
    assert order.index("made") > order.index("1")
    assert json.loads("".join(text for text in order if text != "made")) == {
        "first": 1,
        "second": 2,
    }
