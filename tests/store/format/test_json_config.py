"""The lenient reader and the writer of Apache's JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.json_config import (
    DEPTH_MAX,
    JsonIllegal,
    ObjectKey,
    parse_json,
    parse_object,
    render_json,
)

names = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | names
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(names, inner, max_size=4)
        | st.dictionaries(st.integers(-5, 10**12).map(str), inner, max_size=4)
    ),
    max_leaves=20,
)
object_keys = st.dictionaries(names, st.integers(0, 2**31) | names, max_size=3).map(ObjectKey.of)


def test_bare_integer_keys_read_like_quoted_ones() -> None:
    bare = b'{\n\t"offsetTable":{\n\t\t"TopicA@GroupA":{0:128,1:131\n\t\t}\n\t}\n}'
    assert parse_json(bare) == {"offsetTable": {"TopicA@GroupA": {"0": 128, "1": 131}}}


def test_bare_object_keys_become_object_keys() -> None:
    text = """{
	"offsetTable":{{
			"brokerName":"broker-a",
			"queueId":0,
			"topic":"TopicA"
		}:128,{"topic":"TopicA","queueId":1,"brokerName":"broker-a"}:7
	}
}"""
    first = ObjectKey.of({"topic": "TopicA", "queueId": 0, "brokerName": "broker-a"})
    second = ObjectKey.of({"topic": "TopicA", "queueId": 1, "brokerName": "broker-a"})
    assert parse_json(text) == {"offsetTable": {first: 128, second: 7}}
    assert first.as_dict() == {"brokerName": "broker-a", "queueId": 0, "topic": "TopicA"}


def test_object_keys_are_written_as_the_java_client_writes_them() -> None:
    key = ObjectKey.of({"topic": "TopicA", "queueId": 0, "brokerName": "broker-a"})
    assert render_json({"offsetTable": {key: 128}}).decode() == (
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n'
        '\t\t\t"topic":"TopicA"\n\t\t}:128\n\t}\n}'
    )


def test_the_writer_indents_with_tabs_sorts_keys_and_quotes_integers() -> None:
    written = render_json(
        {
            "b": {"10": 1, "9": 2},
            "a": {"name": "café 你好", "on": True, "list": ["x", 1], "none": {}},
        }
    )
    assert written.decode() == (
        '{\n\t"a":{\n\t\t"list":["x",1],\n\t\t"name":"café 你好",\n\t\t"none":{},\n\t\t"on":true'
        "\n\t},"
        '\n\t"b":{"9":2,"10":1\n\t}\n}'
    )


def test_half_a_surrogate_pair_survives_as_an_escape() -> None:
    written = render_json({"name": "\ud83d"})
    assert parse_json(written) == {"name": "\ud83d"}


@given(documents)
def test_what_is_written_reads_back(document: object) -> None:
    written = render_json(document)
    assert parse_json(written) == document
    assert json.loads(written) == document
    assert not written.endswith(b"\n")


@given(st.dictionaries(object_keys, st.integers(), max_size=3))
def test_maps_with_object_keys_read_back(document: dict[ObjectKey, int]) -> None:
    assert parse_json(render_json({"table": document})) == {"table": document}


@given(documents)
def test_the_lenient_parser_agrees_with_the_strict_one(document: object) -> None:
    """A bare key in front sends the whole text through the lenient parser."""
    text = json.dumps(document)
    assert parse_json(f"{{0:{text}}}") == {"0": document}


@given(st.text(max_size=40) | st.text('{}[]:,"0123456789.eE+-tfn \n\\u', max_size=40))
def test_garbage_gives_a_value_or_a_place(text: str) -> None:
    error: JsonIllegal | None = None
    try:
        parse_json(text)
    except JsonIllegal as found:
        error = found
    if error is not None:
        assert 0 <= error.position <= len(text)
        assert error.line == text.count("\n", 0, error.position) + 1


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "ends too early"),
        ("{0:5,}", 5, "expected a key"),
        ('{"a":1', 6, "ends too early"),
        ('{"a" 1}', 5, "expected ':'"),
        ('{"a":[1 2]}', 8, "expected ',' or ']'"),
        ("{1:2 3:4}", 5, "expected ',' or '}'"),
        ('{"a":tru}', 5, "expected a value"),
        ("{true:1}", 1, "expected a key"),
        ("{1.5:1}", 1, "expected a key"),
        ("{name:1}", 1, "expected a key"),
        ('{{"a":[]}:1}', 1, "serves as a key"),
        ('{"a":"\x01"}', 5, "not closed"),
        ("{0:1} x", 6, "nothing may follow"),
        ('{"a":NaN}', 5, "expected a value"),
        ("{0:" + "1" * 5000 + "}", 3, "too many digits"),
        ("[" * (DEPTH_MAX + 2), DEPTH_MAX + 1, "nested deeper"),
    ],
)
def test_an_error_names_its_place(text: str, position: int, problem: str) -> None:
    with pytest.raises(JsonIllegal, match=problem) as raised:
        parse_json(text)
    assert raised.value.position == position


def test_line_and_column_are_counted_from_one() -> None:
    with pytest.raises(JsonIllegal, match=r"^line 3 column 3 \(position 13\)") as raised:
        parse_json('{\n "a":[1,\n2 3]}')
    assert (raised.value.line, raised.value.column) == (3, 3)


def test_bytes_that_are_not_utf8_are_named() -> None:
    with pytest.raises(JsonIllegal, match=r"line 2 column 7 .*0xff is not UTF-8"):
        parse_json(b'{\n\t"a":"\xff"}')


def test_a_document_may_have_to_be_an_object() -> None:
    assert parse_object("{}") == {}
    with pytest.raises(JsonIllegal, match="must be an object"):
        parse_object("[1]")


@pytest.mark.parametrize("value", [{1: 2}, {"a": {None: 1}}])
def test_keys_of_other_types_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="keys of a JSON object"):
        render_json(value)
