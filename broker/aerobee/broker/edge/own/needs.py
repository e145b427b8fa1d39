"""What calls of aerobee.v1 require at a broker; nameservers have their own table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError

from aerobee.access.needs import (
    MethodNeeds,
    NeedsTable,
    Resources,
    administering,
    needing,
    needing_of_names,
    of_broker,
    of_nodes,
)
from aerobee.access.nodes import NodeName
from aerobee.access.resources import SEEING, Action, Need
from aerobee.domain.names import is_system_topic
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX
from aerobee.store.format.properties import PropertyName
from aerobee.store.format.recall_handle import RecallHandle, RecallHandleIllegal
from aerobee.store.format.record import Record
from aerobee.v1 import replication_pb2

_READ = SEEING
_ORIGINS: Final = (
    PropertyName.REAL_TOPIC,
    PropertyName.RETRY_TOPIC,
    PropertyName.DLQ_ORIGIN_TOPIC,
)


class BrokerNeeds:
    """How requests name their subjects."""

    def __init__(self, resources: Resources) -> None:
        self._of = resources

    def sent(self, frame: Any, _: str) -> Iterable[Need]:
        return self._of.topics((batch.topic for batch in frame.batches), Action.PUB)

    def sends_to(self, request: Any, _: str) -> Iterable[Need]:
        return (self._of.topic(request.topic, Action.PUB),)

    def looks_at(self, request: Any, _: str) -> Iterable[Need]:
        """One topic, or all."""
        if request.topic:
            return (self._of.topic(request.topic, _READ),)
        return (self._of.all_topics(_READ),)

    def recalled(self, request: Any, _: str) -> Iterable[Need]:
        return (self._of.topic(_topic_of(request.recall_handle), Action.PUB),)

    def retimed(self, request: Any, _: str) -> Iterable[Need]:
        topic = _topic_of(request.recall_handle)
        return (self._of.topic(topic, Action.PUB | Action.UPDATE),)

    def recurs(self, request: Any, _: str) -> Iterable[Need]:
        return self._recurring(request.definition.topic)

    def acts_on_schedule(self, request: Any, _: str) -> Iterable[Need]:
        return self._recurring(request.topic)

    def _recurring(self, topic: str) -> Iterable[Need]:
        """A schedule sends until it is removed, also when its author may not send any more."""
        return (self._of.topic(topic, Action.UPDATE), self._of.topic(topic, Action.PUB))

    def ends(self, request: Any, _: str) -> Iterable[Need]:
        action = Action.UPDATE if request.by_operator else Action.PUB
        return (self._of.topic(request.topic, action),)

    def checks(self, request: Any, _: str) -> Iterable[Need]:
        return (self._of.topic(request.topic, Action.UPDATE),)

    def asked(self, request: Any, _: str) -> Iterable[Need]:
        return self._of.topics(request.topics, Action.PUB)

    def pulls(self, request: Any, _: str) -> Iterable[Need]:
        topic = self._of.topic(request.topic, Action.SUB)
        if request.group:
            return (topic, self._of.group(request.group, Action.SUB))
        return (topic,)

    def commands(self, frame: Any, namespace: str) -> Iterable[Need]:
        if frame.HasField("subscribe"):
            return self.pulls(frame.subscribe.request, namespace)
        return ()

    def commits(self, request: Any, _: str) -> Iterable[Need]:
        return (
            self._of.group(request.group, Action.SUB),
            *self._of.topics((each.topic for each in request.offsets), Action.SUB),
        )

    def progress(self, request: Any, _: str) -> Iterable[Need]:
        return (self._of.group(request.group, _READ),)

    def bounds(self, request: Any, _: str) -> Iterable[Need]:
        return self._of.topics((each.topic for each in request.queues), _READ | Action.PUB)

    def resets(self, request: Any, _: str) -> Iterable[Need]:
        return (
            self._of.group(request.group, Action.UPDATE),
            *self._of.topics((each.topic for each in request.offsets), _READ),
        )

    def forgets(self, request: Any, _: str) -> Iterable[Need]:
        return (
            self._of.group(request.group, Action.DELETE),
            self._of.topic(request.topic, _READ),
        )

    def sends_back(self, request: Any, _: str) -> Iterable[Need]:
        return (
            self._of.group(request.group, Action.SUB),
            self._of.topic(request.topic, Action.SUB),
        )

    def settles(self, request: Any, _: str) -> Iterable[Need]:
        group = self._of.group(request.group, Action.UPDATE)
        # Its retry topic is the group's own.
        if request.resend.topic not in ("", RETRY_PREFIX + request.group):
            return (group, self._of.topic(request.resend.topic, Action.PUB))
        return (group,)

    def member(self, frame: Any, _: str) -> Iterable[Need]:
        match frame.WhichOneof("event"):
            case "join":
                join = frame.join
                return (
                    self._of.group(join.group, Action.SUB),
                    *self._of.topics((each.topic for each in join.subscriptions), Action.SUB),
                    *self._of.topics((each.topic for each in join.held), Action.SUB),
                )
            case "heartbeat":
                subscriptions = frame.heartbeat.subscriptions
                return self._of.topics((each.topic for each in subscriptions), Action.SUB)
            case "acquire":
                return (self._of.topic(frame.acquire.topic, Action.SUB),)
        return ()

    def all_groups(self, request: Any, _: str) -> Iterable[Need]:
        return (self._of.all_groups(Action.LIST),)

    def all_groups_seen(self, request: Any, _: str) -> Iterable[Need]:
        wanted = request.group
        groups = self._of.group(wanted, _READ) if wanted else self._of.all_groups(_READ)
        return (groups, self._of.topic(request.topic, _READ)) if request.topic else (groups,)

    def every_group_seen(self, request: Any, _: str) -> Iterable[Need]:
        return (self._of.all_groups(_READ),)

    def group_seen(self, request: Any, _: str) -> Iterable[Need]:
        return (self._of.group(request.group, _READ),)

    def group_deleted(self, request: Any, _: str) -> Iterable[Need]:
        return (self._of.group(request.group, Action.DELETE),)

    def group_changed(self, request: Any, _: str) -> Iterable[Need]:
        return (self._of.group(request.group, Action.UPDATE),)

    def any_message(self, request: Any, _: str) -> Iterable[Need]:
        """A position in the log may be that of any record."""
        return (self._of.cluster(Action.GET), self._of.all_topics(_READ))

    def record(self, record: Record) -> Iterable[Need]:
        """What `any_message` cannot know: the topics of the message that was found. Records of the
        broker itself may be about any topic."""
        topics = topics_of(record)
        named = {topic for topic in topics if not is_system_topic(topic)}
        return self._of.topics(named or topics, _READ)

    def cluster_seen(self, request: Any, _: str) -> Iterable[Need]:
        return (self._of.cluster(Action.GET),)

    def everything_seen(self, request: Any, _: str) -> Iterable[Need]:
        """An audit that leaves out some topics would look like one of all."""
        return (self._of.cluster(Action.GET)._replace(shows_all_topics=True),)

    def cluster_changed(self, request: Any, _: str) -> Iterable[Need]:
        return (self._of.cluster(Action.UPDATE),)


def topics_of(record: Record) -> set[str]:
    """The topic that a record is in, and those to which its message belongs: while it waits, is
    tried again, or after it died."""
    of_message = (record.property_value(name) for name in _ORIGINS)
    return {record.topic, *(topic for topic in of_message if topic)}


def _topics_of(frame: Any) -> set[str]:
    return {batch.topic for batch in frame.batches}


def _topic_of(recall_handle: str) -> str:
    try:
        return RecallHandle.decode(recall_handle).topic
    except RecallHandleIllegal as error:
        raise InvalidArgument(str(error)) from None


def _slave(frame: bytes) -> NodeName | None:
    """A hello says who it is; later frames of the stream are from the same replica."""
    try:
        event = replication_pb2.ReplicaEvent.FromString(frame)
    except DecodeError:
        return None  # this ends the stream
    if not event.HasField("hello"):
        return None
    header, broker_id = event.header, event.hello.replica.broker_id
    return NodeName.broker(header.cluster, header.broker_name, broker_id)


def _group_needs(of: BrokerNeeds) -> dict[str, MethodNeeds]:
    return {
        "Membership": needing(of.member),
        "ListGroups": needing(of.all_groups),
        "ListGroupLags": needing(of.all_groups_seen),
        "ListClients": needing(of.every_group_seen),
        "DescribeGroup": needing(of.group_seen),
        "DeleteGroup": administering(of.group_deleted),
        "ConfigureGroup": administering(of.group_changed),
    }


def broker_needs(cluster: str) -> NeedsTable:
    """By path."""
    of = BrokerNeeds(Resources(cluster))
    services: dict[str, dict[str, MethodNeeds]] = {
        "SendService": {
            "SendStream": needing_of_names(of.sent, _topics_of),
            "Send": needing(of.sends_to),
        },
        "ScheduleService": {
            "ListScheduled": needing(of.looks_at),
            "RecallScheduled": needing(of.recalled),
            "DeliverScheduledNow": needing(of.retimed),
            "Reschedule": needing(of.retimed),
        },
        "RecurringService": {
            "ListSchedules": needing(of.looks_at),
            "PutSchedule": administering(of.recurs),
            "ActOnSchedule": administering(of.acts_on_schedule),
        },
        "TransactionService": {
            "EndTransaction": administering(of.ends),
            "CheckTransaction": administering(of.checks),
            "EndTransactions": needing(of.sends_to),
            "ListTransactions": needing(of.looks_at),
            "WatchChecks": needing(of.asked),
        },
        "PullService": {
            "PullStream": needing(of.commands),
            "Pull": needing(of.pulls, judged_again=True),
        },
        "PopService": {
            "Pop": needing(of.pulls),
            "Acknowledge": needing(of.sends_back),
            "ChangeInvisible": needing(of.sends_back),
            "Reject": needing(of.sends_back),
        },
        "RingService": {"Rings": of_nodes()},
        "OffsetService": {
            "CommitOffsets": needing(of.commits),
            "QueryOffsets": needing(of.progress),
            "QueryBounds": needing(of.bounds),
            "SearchByTimestamp": needing(of.bounds),
            "ResetOffsets": administering(of.resets),
            "DeleteOffsets": administering(of.forgets),
            "SendBack": needing(of.sends_back),
            "SettleDeadLetters": administering(of.settles),
        },
        "GroupService": _group_needs(of),
        "AdminService": {
            "GetStats": needing(of.cluster_seen),
            "GetMessage": needing(of.any_message),
            "QueryMessages": needing(of.looks_at),
            "CleanStore": administering(of.cluster_changed),
            "HandOver": administering(of.cluster_changed),
            "DescribeRemaining": needing(of.everything_seen),
        },
        "AuditService": {
            "Snapshot": needing(of.everything_seen),
            "ChecksumLog": needing(of.cluster_seen),
        },
        "ReplicationService": {"Replicate": of_broker(_slave)},
    }
    return {
        f"/aerobee.v1.{service}/{method}": needs
        for service, methods in services.items()
        for method, needs in methods.items()
    }
