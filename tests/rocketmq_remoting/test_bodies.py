"""Bodies and fields as Apache's clients write and read them."""

from __future__ import annotations

import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.cluster_view.route import Endpoint, MessageQueue, TopicRoute
from aerobee.rocketmq_remoting import fields, json_bodies
from aerobee.rocketmq_remoting.codes import CODES, Code, code_of
from aerobee.rocketmq_remoting.heartbeats import GROUPS_MAX, Subscribed, read_heartbeat
from aerobee.rocketmq_remoting.json_bodies import ObjectKeys
from aerobee.rocketmq_remoting.pulls import Pull
from aerobee.rocketmq_remoting.queues import queue_object, read_queues
from aerobee.rocketmq_remoting.routes import route_body, told_id
from aerobee.rocketmq_remoting.sends import Send, long_names
from aerobee.runtime import errors
from aerobee.store.format.properties import decode_properties

HEARTBEAT = (
    b'{"clientID":"10.0.0.1@DEFAULT","consumerDataSet":[{"consumeFromWhere":'
    b'"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"CG","messageModel":'
    b'"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[97,98],'
    b'"expressionType":"TAG","subString":"a||b","subVersion":1,"tagsSet":["a","b"],"topic":"T"}],'
    b'"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"}],'
    b'"withoutSub":false}'
)
"""As Apache's 5.3.3 printed it."""


def test_a_heartbeat_of_apache_is_read() -> None:
    told = read_heartbeat(HEARTBEAT)
    assert (told.client_id, told.producers) == ("10.0.0.1@DEFAULT", ("PG",))
    (consuming,) = told.consumers
    assert (consuming.group, consuming.is_broadcasting, consuming.is_passive) == ("CG", False, True)
    assert consuming.subscriptions == {"T": Subscribed("T", "a||b", False, 1)}


@pytest.mark.parametrize(
    "change",
    [
        {"clientID": None},
        {"clientID": "a\nb"},
        {"consumerDataSet": {"g": 1}},
        {"consumerDataSet": [{"groupName": "a b"}]},
        {"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": 5}]}]},
        {"producerDataSet": [{"groupName": "g"}] * (GROUPS_MAX + 1)},
    ],
    ids=str,
)
def test_a_heartbeat_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    body = json.dumps({**json.loads(HEARTBEAT), **change}).encode()
    with pytest.raises(errors.InvalidArgument):
        read_heartbeat(body)


def test_names_may_be_numbers_without_quotes() -> None:
    body = b'{"brokerAddrs":{0:"a:1",  12:"{3:4}"},"x":{-1:[{5:6}]}}'
    assert json_bodies.read_object(body) == {
        "brokerAddrs": {"0": "a:1", "12": "{3:4}"},
        "x": {"-1": [{"5": 6}]},
    }


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"a":{1:}}'])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(errors.InvalidArgument):
        json_bodies.read_object(body)


def test_a_large_body_is_refused_unread() -> None:
    with pytest.raises(errors.InvalidArgument, match="at most"):
        json_bodies.read_object(b"[" * (json_bodies.BODY_BYTES_MAX + 1))


def test_objects_are_written_as_names_without_quotes() -> None:
    queue = queue_object(MessageQueue("T", "broker-a", 1))
    assert json_bodies.write({"offsetTable": ObjectKeys([(queue, 5)]), "gone": None}) == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"T"}:5}}'
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=12,
    )
)
def test_what_is_written_is_json_without_what_is_null(value: object) -> None:
    def kept(one: object) -> object:
        if isinstance(one, dict):
            return {name: kept(each) for name, each in one.items() if each is not None}
        return [kept(each) for each in one] if isinstance(one, list) else one

    assert json.loads(json_bodies.write(value)) == kept(value)


def test_queues_to_lock_are_read() -> None:
    body = (
        b'{"clientId":"c1","consumerGroup":"CG","mqSet":[{"brokerName":"broker-a","queueId":1,'
        b'"topic":"T"}],"onlyThisBroker":false}'
    )
    asked = read_queues(body)
    assert (asked.client_id, asked.group) == ("c1", "CG")
    assert asked.queues == [MessageQueue("T", "broker-a", 1)]


# ------------------------------------------------------------------------------------ routes


def endpoint(broker_id: int, *, is_master: bool) -> Endpoint:
    return Endpoint(
        "broker-a", broker_id, f"10.0.0.{broker_id}:1", is_master, 3, False, True, "o:1"
    )


def route_of(*endpoints: Endpoint, perm: int = 6) -> TopicRoute:
    return TopicRoute("T", perm, False, {}, {"broker-a": 4, "broker-b": 4}, endpoints)


def test_a_route_has_no_blanks_and_no_broker_that_is_not_alive() -> None:
    body = route_body(route_of(endpoint(0, is_master=True)), "c", is_outside=False)
    assert body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.0:1"},"brokerName":"broker-a","cluster":"c",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":'
        b'"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_the_master_is_replica_0_whichever_it_is() -> None:
    route = route_of(endpoint(0, is_master=False), endpoint(2, is_master=True))
    (data,) = json.loads(route_body(route, "c", is_outside=False))["brokerDatas"]
    assert data["brokerAddrs"] == {"0": "10.0.0.2:1", "2": "10.0.0.0:1"}


def test_without_a_master_no_replica_is_0_and_nothing_is_sent_there() -> None:
    route = route_of(endpoint(0, is_master=False), endpoint(1, is_master=False))
    told = json.loads(route_body(route, "c", is_outside=False))
    assert "0" not in told["brokerDatas"][0]["brokerAddrs"]
    assert told["queueDatas"][0]["perm"] == 4
    assert told_id(1, None) == 1


def test_clients_outside_are_told_outside_addresses() -> None:
    route = route_of(endpoint(0, is_master=True))
    (data,) = json.loads(route_body(route, "c", is_outside=True))["brokerDatas"]
    assert data["brokerAddrs"] == {"0": "o:1"}


# ------------------------------------------------------------------------------------ fields


@pytest.mark.parametrize("value", ["", "x", "1.5", "--1", "1" * 20, "٣", str(1 << 63)])
def test_a_field_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(errors.InvalidArgument):
        fields.number({"n": value}, "n")


def test_numbers_and_flags_are_read_as_java_writes_them() -> None:
    assert fields.number({"n": "-5"}, "n") == -5
    assert fields.number({}, "n", 7) == 7
    assert fields.flag({"f": "TRUE"}, "f")
    assert not fields.flag({"f": "1"}, "f")
    with pytest.raises(errors.InvalidArgument):
        fields.text({}, "topic")


def test_a_pull_waits_only_if_it_says_so() -> None:
    told = {
        "consumerGroup": "CG", "topic": "T", "queueId": "1", "queueOffset": "5", "maxMsgNums": "32",
        "sysFlag": "2", "commitOffset": "9", "suspendTimeoutMillis": "15000", "subVersion": "3",
    }  # fmt: skip
    pull = Pull.of(told)
    assert (pull.wait_ms, pull.commit_offset, pull.subscription) == (15_000, None, None)
    pull = Pull.of({**told, "sysFlag": "5", "subscription": "a||b"})
    assert (pull.wait_ms, pull.commit_offset, pull.subscription) == (0, 9, "a||b")
    with pytest.raises(errors.InvalidArgument):
        Pull.of({**told, "maxMsgNums": "0"})


# ------------------------------------------------------------------------------------ sends

SHORT = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "17", "h": "3",
         "i": "TAGS\x01a\x02WAIT\x01true", "j": "0", "k": "false", "m": "false"}  # fmt: skip


def in_batch(body: bytes, properties: bytes, size: int | None = None) -> bytes:
    whole = 22 + len(body) + len(properties) if size is None else size
    head = struct.pack(">iiiii", whole, 0, 0, 7, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def test_a_message_gets_an_id_and_loses_what_is_for_the_broker_alone() -> None:
    send = Send.of(long_names(SHORT))
    (message,) = send.messages(b"body", is_batch=False, new_id=lambda: "ID")
    assert decode_properties(message.properties) == {
        "MSG_REGION": "DefaultRegion",
        "TAGS": "a",
        "UNIQ_KEY": "ID",
    }
    assert (message.body, message.flag, message.message_id, message.is_half) == (
        b"body", 3, "ID", False,
    )  # fmt: skip


def test_half_of_a_transaction_is_known_by_its_property() -> None:
    send = Send.of(long_names({**SHORT, "i": "TRAN_MSG\x01true\x02UNIQ_KEY\x01X\x02"}))
    (message,) = send.messages(b"", is_batch=False, new_id=lambda: "ID")
    assert message.is_half
    assert decode_properties(message.properties) == {
        "MSG_REGION": "DefaultRegion",
        "UNIQ_KEY": "X",
    }


def test_a_region_that_a_message_says_already_stays_the_only_one() -> None:
    send = Send.of(long_names({**SHORT, "i": "MSG_REGION\x01north\x02UNIQ_KEY\x01X\x02"}))
    (message,) = send.messages(b"", is_batch=False, new_id=lambda: "ID")
    assert message.properties == b"MSG_REGION\x01north\x02UNIQ_KEY\x01X\x02"


def test_a_batch_is_taken_apart() -> None:
    send = Send.of(long_names(SHORT))
    body = in_batch(b"one", b"UNIQ_KEY\x011\x02") + in_batch(b"", b"")
    found = send.messages(body, is_batch=True, new_id=lambda: "ID")
    assert [(each.body, each.flag, each.message_id) for each in found] == [
        (b"one", 7, "1"),
        (b"", 7, "ID"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        in_batch(b"one", b"")[:-1],
        in_batch(b"one", b"", size=5),
        in_batch(b"one", b"") + b"\0",
        struct.pack(">iiiii", 30, 0, 0, 0, -1) + bytes(10),
        struct.pack(">iiiii", 30, 0, 0, 0, 1 << 30) + bytes(10),
    ],
)
def test_a_batch_whose_sizes_do_not_fit_is_refused(body: bytes) -> None:
    with pytest.raises(errors.MessageIllegal):
        Send.of(long_names(SHORT)).messages(body, is_batch=True, new_id=lambda: "ID")


@given(st.binary(max_size=120))
def test_no_batch_makes_anything_else_escape(body: bytes) -> None:
    with contextlib.suppress(errors.MessageIllegal):
        Send.of(long_names(SHORT)).messages(body, is_batch=True, new_id=lambda: "ID")


# ------------------------------------------------------------------------------------ errors


def test_every_error_has_a_code_and_none_is_taken_for_a_success() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.AerobeeError)
    ]
    assert len(kinds) > 40
    assert Code.SUCCESS not in {code_of(kind("")) for kind in kinds}
    assert code_of(errors.MessageTooLarge("")) is CODES[errors.MessageIllegal]
