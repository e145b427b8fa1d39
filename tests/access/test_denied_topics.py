"""A user with every reading right but for one topic sees nothing of that topic, by whatever method:
neither its messages nor that it exists."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from aerobee.access.credentials import (
    CLUSTER_SECRET_VARIABLE,
    FILE_VARIABLE,
    Credentials,
    credentials_of_environment,
)
from aerobee.access.needs import Who
from aerobee.rocketmq_api.times import timestamp
from aerobee.v1 import broker_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.access.test_doors import AT_BROKERS, CLIENT
from tests.access.test_needs import TABLE, methods
from tests.support.local_up import Up, running
from tests.support.plain_requests import plain_request
from tests.support.v2_calls import sent_message
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

HIDDEN, ADMIN, NAMESERVER = "secret", "/aerobee.v1.AdminService/", "/aerobee.v1.NameserverService/"
IN_HANDLES = base64.b64encode(b"v1 secret")[:12]
READING = "Pub,Sub,Get,List"
SHOWN = {
    "DescribeGroup", "DescribeRemaining", "ListScheduled", "ListTopics", "ListTransactions",
    "QueryOffsets", "Snapshot",
}  # fmt: skip
"""What shows the topic to a user that may see it, without being asked for it."""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--access") as up:
        up.environment[CLUSTER_SECRET_VARIABLE] = str(up.data / "access" / "cluster-secret")
        up.run("topic", "create", "bank", "--queues", "1")
        up.run("topic", "create", HIDDEN, "--queues", "1")
        up.run("topic", "create", f"{HIDDEN}-delay", "--type", "delay")
        up.run("topic", "create", f"{HIDDEN}-tx", "--type", "transaction")
        fill(up)
        yield up


def user(up: Up, name: str, folder: Path, *, denied: str = "") -> Credentials:
    file = folder / name
    up.run("user", "create", name, "--credentials-file", str(file))
    up.run("acl", "add", name, "*", READING)
    if denied:
        up.run("acl", "add", name, denied, "All", "--deny")
    return credentials_of_environment({FILE_VARIABLE: str(file)})


@pytest.fixture(scope="module")
def users(up: Up, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Credentials]:
    folder = tmp_path_factory.mktemp("credentials")
    up.environment["CLERK"] = str(folder / "clerk")
    return {
        "sees all": user(up, "auditor", folder),
        "denied": user(up, "clerk", folder, denied=f"Topic:{HIDDEN}*"),
        "operator": credentials_of_environment(up.environment),
    }


def fill(up: Up) -> None:
    """A message, one that waits, an open transaction, and a group that has read."""
    operator = credentials_of_environment(up.environment)
    with grpc.insecure_channel(up.document()["brokers"][0]["address"]) as channel:
        for topic, system in {
            HIDDEN: v2.SystemProperties(),
            f"{HIDDEN}-delay": v2.SystemProperties(
                message_type=v2.DELAY,
                delivery_timestamp=timestamp(int(time.time() + 3_600) * 1_000),
            ),
            f"{HIDDEN}-tx": v2.SystemProperties(message_type=v2.TRANSACTION),
        }.items():
            message = sent_message(topic, HIDDEN.encode(), f"ID-{topic}")
            message.system_properties.MergeFrom(system)
            wait_until(lambda: is_sent(channel, message, operator), f"topic {topic}")  # noqa: B023
        commit = broker_pb2.CommitOffsetsRequest(
            group="readers",
            offsets=[broker_pb2.QueueOffset(topic=HIDDEN, offset=0)],
        )
        answers(channel, "/aerobee.v1.OffsetService/CommitOffsets", commit, operator)


def is_sent(channel: grpc.Channel, message: v2.Message, who: Credentials) -> bool:
    path = "/apache.rocketmq.v2.MessagingService/SendMessage"
    request = service_pb2.SendMessageRequest(messages=[message])
    (answer,) = answers(channel, path, request, who)
    return bool(answer.status.code == v2.OK)


def answers(
    channel: grpc.Channel,
    path: str,
    request: Message,
    who: Credentials,
    *,
    timeout_s: float = 20,
) -> list[Any]:
    """All that come in time. Raises RpcError if the first is a refusal."""
    call: Any = channel.stream_stream(
        path,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(methods()[path].output_type).FromString,
    )
    coming = call(iter((request,)), metadata=(*CLIENT, *who.metadata(path)), timeout=timeout_s)
    first = next(coming, None)
    found = [] if first is None else [first]
    with suppress(grpc.RpcError):
        found.extend(coming)
    return found


TEXTS = {"group": "readers", "broker_name": "broker-a", "cluster": "aerobee"}


def showing(up: Up, who: Credentials) -> set[str]:
    """Methods that show the topic to a user that does not name it."""
    found, document = set(), up.document()
    for path, method in methods().items():
        if TABLE[path].who is not Who.USERS:
            continue
        at_broker = method.containing_service.file in {each.DESCRIPTOR for each in AT_BROKERS}
        address = document["brokers"][0]["address"] if at_broker else document["nameserver"]
        with grpc.insecure_channel(address) as channel:
            for request in requests(method):
                try:
                    said = answers(channel, path, request, who, timeout_s=1)
                except grpc.RpcError:
                    continue
                if any(is_shown(each.SerializeToString()) for each in said):
                    found.add(method.name)
    return found


def requests(method: MethodDescriptor) -> Iterator[Message]:
    """One that names nothing but a group, and one that names another topic everywhere."""
    empty = GetMessageClass(method.input_type)()
    for field, text in TEXTS.items():
        if field in method.input_type.fields_by_name and method.full_name.startswith("aerobee"):
            setattr(empty, field, text)
    yield empty
    yield plain_request(method.input_type, TEXTS, otherwise="bank")


def is_shown(data: bytes) -> bool:
    return HIDDEN.encode() in data.lower() or IN_HANDLES in data


def test_no_method_shows_a_denied_topic_that_was_not_named(
    up: Up, users: dict[str, Credentials]
) -> None:
    assert showing(up, users["sees all"]) >= SHOWN
    assert showing(up, users["denied"]) == set()


def test_no_position_of_the_log_shows_a_denied_topic(up: Up, users: dict[str, Credentials]) -> None:
    """Neither the record itself, nor while it waits, nor what the broker notes of it."""
    path, secrets = ADMIN + "GetMessage", 0
    with grpc.insecure_channel(up.document()["brokers"][0]["address"]) as channel:
        stats = answers(
            channel, ADMIN + "GetStats", broker_pb2.GetStatsRequest(), users["operator"]
        )[0]
        position = stats.log_min_offset
        while position < stats.log_dispatched_end:
            request = broker_pb2.GetMessageRequest(physical_offset=position)
            (found,) = answers(channel, path, request, users["operator"])
            position += int.from_bytes(found.record[:4])
            if is_shown(found.record):
                secrets += 1
                with pytest.raises(grpc.RpcError) as caught:
                    answers(channel, path, request, users["denied"])
                assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert secrets >= 4  # the three messages, and the group's offset


def test_queues_of_the_broker_itself_are_closed_to_whom_a_topic_is_denied(
    up: Up, users: dict[str, Credentials]
) -> None:
    """A half message and a delayed one wait there in the records of their topic."""
    path = "/aerobee.v1.PullService/Pull"
    with grpc.insecure_channel(up.document()["brokers"][0]["address"]) as channel:
        for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"):
            request = broker_pb2.PullRequest(topic=topic)
            (found,) = answers(channel, path, request, users["sees all"])
            assert is_shown(found.records)
            with pytest.raises(grpc.RpcError) as caught:
                answers(channel, path, request, users["denied"])
            assert "no topic denied; the policy is: Deny All" in str(caught.value.details())


def test_commands_leave_out_a_denied_topic(up: Up, users: dict[str, Credentials]) -> None:
    before = up.environment
    up.environment = {FILE_VARIABLE: before["CLERK"]}
    try:
        shown = [up.run(*command, "list").stdout for command in (("topic",), ("schedule",))]
    finally:
        up.environment = before
    assert "bank" in shown[0]
    assert not any(HIDDEN in each for each in shown)
