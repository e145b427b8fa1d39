"""Lines that become messages."""

from __future__ import annotations

import base64
import json

import pytest
from click.testing import CliRunner

from aerobee.cli.__main__ import main
from aerobee.cli.message_lines import LineDefaults, message_of_json, message_of_text
from aerobee.client_core.schedule import Schedule
from aerobee.runtime.errors import MessageIllegal

PLAIN = LineDefaults(topic="t")
FULL = LineDefaults(
    topic="t", tag="blue", keys=("k1", "k2"), sharding_key="s", properties={"colour": "x"}
)


def test_a_text_line_is_the_body_and_gets_the_defaults() -> None:
    message = message_of_text("grüße".encode(), FULL)
    assert message.body == "grüße".encode()
    assert (message.topic, message.tag, message.keys) == ("t", "blue", ("k1", "k2"))
    assert message.sharding_key == "s"
    assert message.properties == {"colour": "x"}


def test_a_json_line_overrides_the_defaults() -> None:
    line = json.dumps(
        {"body": "hello", "tag": "red", "keys": ["k3"], "properties": {"size": "9"}}
    ).encode()
    message = message_of_json(line, FULL)
    assert message.body == b"hello"
    assert (message.tag, message.keys) == ("red", ("k3",))
    assert message.properties == {"colour": "x", "size": "9"}


@pytest.mark.parametrize(
    ("says", "schedule"),
    [
        ({}, Schedule(delay_ms=5_000)),
        ({"delay": "30s"}, Schedule(delay_ms=30_000)),
        ({"deliverAt": "2099-01-31T12:00:00+00:00"}, Schedule(deliver_ms=4_073_544_000_000)),
        ({"deliverAt": 4_073_544_000_000}, Schedule(deliver_ms=4_073_544_000_000)),
        ({"delayLevel": 3}, Schedule(level=3)),
    ],
)
def test_a_json_line_says_when_it_arrives(says: dict[str, object], schedule: Schedule) -> None:
    defaults = LineDefaults(topic="t", delay_ms=5_000)
    message = message_of_json(json.dumps({"body": "tea", **says}).encode(), defaults)
    assert message.schedule == schedule


def test_a_binary_body_comes_as_base64() -> None:
    line = json.dumps({"bodyBase64": base64.b64encode(b"\x00\xff").decode()}).encode()
    assert message_of_json(line, PLAIN).body == b"\x00\xff"


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[1]",
        b"{}",
        b'{"body": 5}',
        b'{"body": ""}',
        b'{"body": "a", "bodyBase64": "YQ=="}',
        b'{"bodyBase64": "?"}',
        b'{"body": "a", "tag": 5}',
        b'{"body": "a", "keys": [5]}',
        b'{"body": "a", "properties": {"x": 5}}',
        b'{"body": "a", "properties": [1]}',
        b'{"body": "a", "properties": {"TAGS": "x"}}',
        b'{"body": "a", "delay": 30}',
        b'{"body": "a", "delay": "soon"}',
        b'{"body": "a", "deliverAt": "soon"}',
        b'{"body": "a", "deliverAt": true}',
        b'{"body": "a", "delayLevel": 0}',
        b'{"body": "a", "delay": "1s", "delayLevel": 1}',
    ],
)
def test_a_line_that_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(MessageIllegal):
        message_of_json(line, PLAIN)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"body":"x","propertys":{"a":"1"}}', "unknown field 'propertys'.*properties"),
        ('{"body":"x","body":"y"}', "'body' twice"),
        ('{"body":"x","properties":{"a":"1","a":"2"}}', "'a' twice"),
    ],
)
def test_a_field_that_would_be_dropped_is_refused_by_name(line: str, said: str) -> None:
    with pytest.raises(MessageIllegal, match=said):
        message_of_json(line.encode(), PLAIN)


def test_fields_of_a_stored_message_are_taken_and_mean_nothing() -> None:
    stored = {"topic": "o", "broker": "b", "queue": 1, "offset": 2, "messageId": "m"}
    stored |= {"offsetMessageId": "n", "bornMs": 3, "storedMs": 4, "reconsumeTimes": 5}
    message = message_of_json(json.dumps({"body": "x", **stored}).encode(), PLAIN)
    assert (message.topic, message.body) == ("t", b"x")


def test_a_property_that_is_given_twice_is_refused_by_name() -> None:
    given = ["produce", "t", "--property", "a=1", "--property", "a=2"]
    refused = CliRunner().invoke(main, given)
    assert (refused.exit_code, "gives 'a' twice" in refused.stderr) == (2, True)
