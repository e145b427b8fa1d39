"""Topics of a type: values are written and read by their library, and what is none is rejected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.codecs import Codec, codec_of
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.client_core.schemas import SchemaIncompatible, conflicts, shown, stored
from aerobee.consumer_client import (
    ConsumeResult,
    Listener,
    Ordering,
    PushConsumer,
    Reject,
    RetryLater,
    StartFrom,
)
from aerobee.consumer_client.typed import CONTENT_TYPE, TypedTopic
from aerobee.producer_client import Producer
from aerobee.runtime.errors import InvalidArgument, MessageIllegal
from aerobee.testing import VirtualCluster
from aerobee.v1 import common_pb2


class Struct(msgspec.Struct):
    number: int
    goods: list[str] = []


class Model(pydantic.BaseModel):
    number: int
    at: datetime


@dataclass
class Order:
    number: int
    note: str | None = None


AT = datetime(2030, 1, 2, tzinfo=UTC)
PROTO = common_pb2.Status(message="hello", retry_after_ms=7)


@pytest.mark.parametrize(
    ("kind", "value", "content_type"),
    [
        (Struct, Struct(7, ["wax"]), "application/json"),
        (Model, Model(number=7, at=AT), "application/json"),
        (Order, Order(7, "soon"), "application/json"),
        (common_pb2.Status, PROTO, "application/x-protobuf"),
        (str, "grüezi", "text/plain; charset=utf-8"),
        (bytes, b"\x00\xff", ""),
        (dict[str, int], {"a": 1}, "application/json"),
    ],
)
def test_a_value_is_read_as_it_was_written(kind: Any, value: object, content_type: str) -> None:
    topic: TypedTopic[Any] = TypedTopic("orders", kind)
    message = topic.message(value, tag="t", keys=["k"], properties={"a": "b"})
    assert (message.topic, message.tag, message.keys) == ("orders", "t", ("k",))
    assert message.properties.get(CONTENT_TYPE, "") == content_type
    assert message.properties["a"] == "b"
    codec: Codec[Any] = codec_of(kind)
    assert codec.decode(message.body) == value


def test_types_are_known_to_type_checkers() -> None:
    orders = TypedTopic("orders", Order)

    def handle(order: Order, message: ReceivedMessage) -> None:
        number: int = order.number
        assert number

    async def handle_later(order: Order, message: ReceivedMessage) -> ConsumeResult:
        return ConsumeResult.SUCCESS if order.note else ConsumeResult.RETRY_LATER

    read: Callable[[ReceivedMessage], Order] = orders.read
    listeners: list[Listener] = [orders.listener(handle), orders.listener(handle_later)]
    assert (read.__name__, len(listeners)) == ("read", 2)
    with pytest.raises(MessageIllegal):
        orders.message("no order")  # type: ignore[arg-type]


def test_a_value_of_another_type_is_not_sent() -> None:
    for topic, value in (
        (TypedTopic("orders", Struct), {"number": "x"}),
        (TypedTopic("orders", Model), {"number": "x"}),
        (TypedTopic("orders", Order), 5),
    ):
        with pytest.raises(MessageIllegal, match="cannot be sent"):
            topic.message(value)  # type: ignore[arg-type]
    with pytest.raises(MessageIllegal, match="empty"):
        TypedTopic("orders", common_pb2.Status).message(common_pb2.Status())


async def test_what_the_type_refuses_is_a_dead_letter_at_once_and_the_rest_is_handled() -> None:
    orders = TypedTopic("orders", Order)
    handled: list[int] = []
    attempts: list[int] = []

    async def handle(order: Order, message: ReceivedMessage) -> ConsumeResult | RetryLater | None:
        if order.note == "reject":
            raise Reject("no such customer")
        attempts.append(order.number)
        if order.note == "later" and message.reconsume_times == 0:
            return RetryLater("closed", after=30)
        handled.append(order.number)
        return None

    async with (
        VirtualCluster(seed=2) as cluster,
        Producer(cluster.nameservers) as producer,
        AdminClient(cluster.nameservers) as admin,
    ):
        await cluster.create_topic("orders", queues=1)
        await producer.send_batch(
            [
                orders.message(Order(1)),
                Message("orders", b"not JSON"),
                Message("orders", b'{"note":"x"}'),
                Message("orders", b'{"number":9}', properties={CONTENT_TYPE: "text/csv"}),
                orders.message(Order(2, "reject")),
                Message("orders", b'{"number":3}'),
                orders.message(Order(4, "later")),
                orders.message(Order(5)),
            ]
        )
        consumer = PushConsumer(
            "billing",
            orders.listener(handle),
            nameservers=cluster.nameservers,
            start_from=StartFrom.FIRST,
            consume_batch_max=4,
        ).subscribe(orders.name)
        async with consumer:
            await cluster.advance(minutes=5)
        letters = [each async for each in admin.dead_letters.find("billing")]
    assert sorted(handled) == [1, 3, 4, 5]
    reasons = sorted(letter.message.properties["DLQ_REASON"] for letter in letters)
    assert len(reasons) == 4
    assert "no such customer" in reasons[0] + reasons[-1]
    assert sum("the body is no Order" in each for each in reasons) == 2
    assert sum("text/csv" in each for each in reasons) == 1
    assert all(each.count("the body is") <= 1 and "[typed.py" not in each for each in reasons)
    assert max(map(len, reasons)) < 350
    assert all(letter.message.body for letter in letters)


async def test_a_plain_function_has_the_same_answers() -> None:
    topic, seen = TypedTopic("orders", int), list[int]()

    def handle(number: int, message: ReceivedMessage) -> None:
        seen.append(number)

    async with VirtualCluster(seed=2) as cluster, Producer(cluster.nameservers) as producer:
        await cluster.create_topic("orders", queues=1)
        await producer.send_batch([topic.message(7), Message("orders", b"x"), topic.message(8)])
        consumer = PushConsumer(
            "billing",
            topic.listener(handle),
            nameservers=cluster.nameservers,
            start_from=StartFrom.FIRST,
        ).subscribe("orders")
        async with consumer:
            await cluster.advance(minutes=1)
    assert sorted(seen) == [7, 8]


async def test_in_order_nothing_overtakes_a_message_that_comes_again() -> None:
    topic = TypedTopic("orders", str)
    seen: list[str] = []

    async def handle(text: str, message: ReceivedMessage) -> None:
        seen.append(text)
        if text == "b" and seen.count("b") < 3:
            raise RuntimeError("not yet")

    async with VirtualCluster(seed=2) as cluster, Producer(cluster.nameservers) as producer:
        await cluster.create_topic("orders", queues=1)
        await producer.send_batch([topic.message(each) for each in "abcd"])
        consumer = PushConsumer(
            "billing",
            topic.listener(handle),
            nameservers=cluster.nameservers,
            start_from=StartFrom.FIRST,
            ordering=Ordering.ORDERLY,
            consume_batch_max=4,
        ).subscribe("orders")
        async with consumer:
            await cluster.advance(minutes=5)
    assert seen == ["a", "b", "b", "b", "c", "d"]


# ---------------------------------------------------------------------------------- schemas


class OrderV2(msgspec.Struct):
    """One more, optional."""

    number: int
    goods: list[str] = []
    note: str = ""


class Renamed(msgspec.Struct):
    nr: int


class Other(msgspec.Struct):
    number: str


@pytest.mark.parametrize(
    ("after", "wanted"),
    [
        (Struct, []),
        (OrderV2, []),
        (Renamed, ["required"]),
        (Other, ["type"]),
        (common_pb2.Status, ["protobuf"]),
    ],
)
def test_a_change_of_schema_is_compatible_or_says_why_not(after: Any, wanted: list[str]) -> None:
    topic: TypedTopic[Any] = TypedTopic("orders", after)
    found = conflicts(TypedTopic("orders", Struct).schema(), topic.schema())
    assert bool(found) == bool(wanted)
    for word in wanted:
        assert any(word in each for each in found)


@pytest.mark.parametrize(
    ("before", "after", "is_compatible"),
    [
        ({"type": "integer"}, {"type": "integer"}, True),
        ({"type": "integer"}, {"type": "number"}, False),
        ({"enum": ["a", "b"]}, {"enum": ["a", "b", "c"]}, False),
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 9}, False),
        ({"type": "string", "title": "A"}, {"type": "string", "title": "B"}, True),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "time"}, False),
        ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {}}, False),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {"anyOf": [{"type": "null"}, {"type": "string"}]},
            True,
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string"}, False),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": False,
            },
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
            False,
        ),
        (
            {"$ref": "#/$defs/N", "$defs": {"N": {"properties": {"next": {"$ref": "#/$defs/N"}}}}},
            {"$ref": "#/$defs/M", "$defs": {"M": {"properties": {"next": {"$ref": "#/$defs/M"}}}}},
            True,
        ),
        ({"type": "object", "required": ["a"]}, {"type": "object"}, False),
    ],
)
def test_json_schemas_are_compared_both_ways(
    before: dict[str, Any], after: dict[str, Any], is_compatible: bool
) -> None:
    texts = [msgspec.json.encode(each).decode() for each in (before, after)]
    assert (conflicts(*texts) == []) is is_compatible


def test_protobuf_fields_keep_their_numbers_types_and_counts() -> None:
    schema = TypedTopic("t", common_pb2.Status).schema()
    assert conflicts(schema, schema.replace('"message","string"', '"text","string"')) == []
    changed = conflicts(schema, schema.replace('"message","string"', '"message","bytes"'))
    assert changed == ["field 2 of aerobee.v1.Status was message, string and is message, bytes"]


def test_a_schema_is_kept_small_and_without_what_only_people_read() -> None:
    text = TypedTopic("t", Model).schema()
    attribute = stored(text)
    assert len(attribute) < len(text)
    assert '"title"' in text
    assert '"title"' not in shown(attribute)
    assert conflicts(text, shown(attribute)) == []
    with pytest.raises(InvalidArgument, match="not JSON"):
        stored("{")
    with pytest.raises(InvalidArgument, match="no schema"):
        shown("z:nonsense")


async def test_a_topic_keeps_its_schema_and_refuses_an_incompatible_one() -> None:
    async with VirtualCluster(seed=2) as cluster, AdminClient(cluster.nameservers) as admin:
        await cluster.create_topic("orders", attributes={"team": "shop"})
        assert await admin.topics.schema("orders") == ""
        first = TypedTopic("orders", Struct).schema()
        assert await admin.topics.set_schema("orders", first) == []
        assert conflicts(first, await admin.topics.schema("orders")) == []
        await admin.topics.set_schema("orders", TypedTopic("orders", OrderV2).schema())
        with pytest.raises(SchemaIncompatible, match="number"):
            await admin.topics.set_schema("orders", TypedTopic("orders", Other).schema())
        forced = await admin.topics.set_schema(
            "orders", TypedTopic("orders", Other).schema(), force=True
        )
        assert forced
        await admin.topics.set_schema("orders", "")
        assert dict((await admin.topics.get("orders")).attributes) == {"team": "shop"}
