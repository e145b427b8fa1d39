"""Every method of every protocol has a stated need, and no table states one of a method that is
not there."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from aerobee.access.needs import NeedsTable, Who
from aerobee.access.resources import Action, Kind, Need
from aerobee.broker.edge.own.needs import broker_needs
from aerobee.cluster_view import audit_log_service
from aerobee.nameserver.needs import nameserver_needs
from aerobee.rocketmq_api.needs import messaging_needs
from aerobee.runtime.errors import AerobeeError
from aerobee.store.format.recall_handle import RecallHandle
from aerobee.v1 import (
    access_pb2,
    audit_log_pb2,
    audit_pb2,
    broker_pb2,
    nameserver_pb2,
    replication_pb2,
)
from apache.rocketmq.v2 import admin_pb2, definition_pb2, service_pb2

FILES: tuple[FileDescriptor, ...] = (
    access_pb2.DESCRIPTOR,
    audit_log_pb2.DESCRIPTOR,
    audit_pb2.DESCRIPTOR,
    broker_pb2.DESCRIPTOR,
    nameserver_pb2.DESCRIPTOR,
    replication_pb2.DESCRIPTOR,
    admin_pb2.DESCRIPTOR,
    service_pb2.DESCRIPTOR,
)
TABLE: NeedsTable = {
    **broker_needs("hive"),
    **nameserver_needs("hive"),
    **audit_log_service.needs("hive"),
    **messaging_needs("hive"),
}


def methods() -> dict[str, MethodDescriptor]:
    return {
        f"/{service.full_name}/{method.name}": method
        for file in FILES
        for service in file.services_by_name.values()
        for method in service.methods
    }


def test_each_method_has_a_need() -> None:
    assert set(methods()) == set(TABLE)


def test_all_services_are_known_here(pytestconfig: pytest.Config) -> None:
    protos = pytestconfig.rootpath / "protos"
    with_services = {
        path.relative_to(protos).as_posix()
        for path in protos.rglob("*.proto")
        if "\nservice " in path.read_text()
    }
    assert with_services == {file.name for file in FILES}


def test_an_empty_request_never_passes_as_one_without_needs() -> None:
    """What a request leaves out must not leave out the right."""
    free = set()
    for path, method in methods().items():
        needs = TABLE[path]
        if needs.who is not Who.USERS:
            continue
        request = GetMessageClass(method.input_type)()
        try:
            if not tuple(needs.of(request, "")):
                free.add(path.rpartition("/")[2])
        except AerobeeError:
            pass  # a name is missing, which is answered so
    assert free == {
        "SendStream",  # no batch
        "SendMessage",  # no message
        "WatchChecks",  # no topic: refused
        "PullStream",  # no command
        "QueryBounds",
        "SearchByTimestamp",
        "Membership",  # no event
        "QueryRoute",
        "WatchRoutes",
        "Heartbeat",  # a producer's
        "Telemetry",  # no settings
        "NotifyClientTermination",  # a producer's
    }


def needs_of(path: str, request: object, namespace: str = "") -> set[str]:
    return {str(need) for need in TABLE[path].of(request, namespace)}


def test_requests_name_what_they_are_about() -> None:
    own, v2 = "/aerobee.v1.", "/apache.rocketmq.v2.MessagingService/"
    topic = definition_pb2.Resource(name="t")
    group = definition_pb2.Resource(name="g")
    frame = broker_pb2.SendFrame(
        batches=[broker_pb2.RecordBatch(topic="a"), broker_pb2.RecordBatch(topic="b")]
    )
    handle = RecallHandle("orders", "broker-a", 5, "key").encode()
    join = broker_pb2.Join(
        group="g",
        subscriptions=[
            broker_pb2.Subscription(topic="t"),
            broker_pb2.Subscription(topic="%RETRY%g"),
        ],
    )
    found = {
        "send": needs_of(own + "SendService/SendStream", frame),
        "recall": needs_of(
            own + "ScheduleService/RecallScheduled",
            broker_pb2.RecallScheduledRequest(recall_handle=handle),
        ),
        "list": needs_of(own + "ScheduleService/ListScheduled", broker_pb2.ListScheduledRequest()),
        "join": needs_of(own + "GroupService/Membership", broker_pb2.MemberEvent(join=join)),
        "internal": needs_of(
            own + "PullService/Pull", broker_pb2.PullRequest(topic="RMQ_SYS_TRANS_HALF_TOPIC")
        ),
        "route to internal": needs_of(
            own + "NameserverService/QueryRoute",
            nameserver_pb2.QueryRouteRequest(topics=["AEROBEE_OFFSET_JOURNAL"]),
        ),
        "plan of a topic that is missing": needs_of(
            own + "NameserverService/QueryRoute",
            nameserver_pb2.QueryRouteRequest(topics=["t"], plan_missing=True),
        ),
        "delete internal": needs_of(
            own + "NameserverService/DeleteTopic",
            nameserver_pb2.DeleteTopicRequest(name="AEROBEE_OFFSET_JOURNAL"),
        ),
        "create": needs_of(
            own + "NameserverService/CreateTopic", nameserver_pb2.CreateTopicRequest(name="t")
        ),
        "receive": needs_of(
            v2 + "ReceiveMessage",
            service_pb2.ReceiveMessageRequest(
                group=group, message_queue=definition_pb2.MessageQueue(topic=topic)
            ),
            "shop",
        ),
        "route": needs_of(v2 + "QueryRoute", service_pb2.QueryRouteRequest(topic=topic)),
    }
    assert found == {
        "send": {"Pub on Topic:a", "Pub on Topic:b"},
        "recall": {"Pub on Topic:orders"},
        "list": {"Sub or Get on Topic:*"},
        "join": {"Sub on Group:g", "Sub on Topic:t"},
        "internal": {"Get on Cluster:hive and no topic denied"},
        "route to internal": {"Update or Get on Cluster:hive and no topic denied"},
        "plan of a topic that is missing": {"Pub on Topic:t"},
        "delete internal": {"Update on Cluster:hive"},
        "create": {"Create on Topic:t"},
        "receive": {"Sub on Group:shop%g", "Sub on Topic:shop%t"},
        "route": {"Pub or Sub on Topic:t"},
    }
    assert Need(Kind.TOPIC, "t", Action.PUB) in TABLE[own + "SendService/Send"].of(
        broker_pb2.SendRequest(topic="t"), ""
    )
