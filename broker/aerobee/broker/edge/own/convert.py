"""Protobuf to domain and back: with the servicers, the only code that knows both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast
from urllib.parse import unquote

from aerobee.access.running import topics_seen
from aerobee.broker.groups.members import Member, Subscription, check_subscriptions
from aerobee.broker.groups.membership import GroupView
from aerobee.broker.groups.receivers import SIMPLE_CONSUMER, Receiver
from aerobee.broker.groups.self_assigned import SelfMember
from aerobee.broker.observe.remaining import Remaining
from aerobee.broker.observe.stats import BrokerStatistics
from aerobee.broker.reading.egress import ReadCode
from aerobee.broker.reading.pull_session import PulledFrame
from aerobee.broker.replication.statistics import ReplicationStatistics
from aerobee.broker.sending.durability import Late
from aerobee.broker.sending.ingest import Receipt
from aerobee.domain import names
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.domain.sql_filter.wish import Wish
from aerobee.domain.tag_expression import parse_tags
from aerobee.rocketmq_api.clients.table import Client
from aerobee.rpc.own_protocol import code_of
from aerobee.runtime.errors import AerobeeError, Busy, FilterIllegal
from aerobee.runtime.printable import printable
from aerobee.runtime.varint import varint
from aerobee.store.engine.retention.retention_statistics import UnreadRemoval
from aerobee.store.format.record_layout import HostAddress
from aerobee.v1 import broker_pb2, common_pb2

UNKNOWN_HOST = HostAddress(bytes(4), 0)

# Field tags of the wire format: PullFrame.handle, PullFrame.result, PullResult.records.
_HANDLE_TAG = b"\x08"
_RESULT_TAG = b"\x12"
_RECORDS_TAG = b"\x32"


REMOVALS_MAX = 1_000
"""How many queues a list of unread removals names; totals count all."""
READERS_LISTED_MAX = 1_000
"""How many groups and topics a list of unread messages names; the total counts all."""
_BLANKS = dict.fromkeys(map(ord, "\t\n\r\f"), " ")


def status_of(error: AerobeeError | None) -> common_pb2.Status:
    """OK for None."""
    if error is None:
        return common_pb2.Status(code=common_pb2.OK)
    wait_ms = error.retry_after_ms if isinstance(error, Busy) else 0
    return common_pb2.Status(code=wire_code(error), message=str(error), retry_after_ms=wait_ms)


def wire_code(error: AerobeeError) -> common_pb2.Code:
    """The error's code; the numbers are equal, the conversion is for the type checker."""
    return cast("common_pb2.Code", code_of(error))


READ_CODES: dict[ReadCode, common_pb2.Code] = {
    ReadCode.OK: common_pb2.OK,
    ReadCode.NO_NEW_MESSAGE: common_pb2.NO_NEW_MESSAGE,
    ReadCode.OFFSET_TOO_SMALL: common_pb2.OFFSET_TOO_SMALL,
    ReadCode.OFFSET_TOO_LARGE: common_pb2.OFFSET_TOO_LARGE,
    ReadCode.MESSAGE_REMOVED: common_pb2.MESSAGE_REMOVED,
}

_LATE: dict[Late, tuple[common_pb2.Code, str]] = {
    Late.DISK: (common_pb2.FLUSH_DISK_TIMEOUT, "the disk did not confirm it in time"),
    Late.REPLICAS: (
        common_pb2.FLUSH_SLAVE_TIMEOUT,
        "the in-sync replicas did not all confirm it in time, or another one became master",
    ),
    Late.NO_REPLICA: (
        common_pb2.SLAVE_NOT_AVAILABLE,
        "too few replicas are in sync to confirm it",
    ),
}


# ---------------------------------------------------------------------------------- sending


def ack_frame(
    receipts: Iterable[Receipt], durability: broker_pb2.Durability
) -> broker_pb2.SendAckFrame:
    """One frame for many receipts, all of which are fulfilled."""
    frame = broker_pb2.SendAckFrame()
    add = frame.acks.add
    for receipt in receipts:
        error = receipt.error
        if error is not None:
            add(
                sequence=receipt.sequence,
                code=wire_code(error),
                message=str(error),
                retry_after_ms=error.retry_after_ms if isinstance(error, Busy) else 0,
            )
        elif receipt.late is None:
            add(
                sequence=receipt.sequence,
                code=common_pb2.OK,
                base_queue_offset=receipt.base_queue_offset,
                base_physical_offset=receipt.base_physical_offset,
                store_timestamp_ms=receipt.store_timestamp_ms,
                stored_count=receipt.stored_count,
                transaction_id=receipt.transaction_id,
                durability=durability if receipt.wait_end else broker_pb2.PAGE_CACHE,
            )
        else:
            code, why = _LATE[receipt.late]
            add(
                sequence=receipt.sequence,
                code=code,
                message=f"stored, but {why}; send it again only if a duplicate does no harm",
                base_queue_offset=receipt.base_queue_offset,
                base_physical_offset=receipt.base_physical_offset,
                store_timestamp_ms=receipt.store_timestamp_ms,
                stored_count=receipt.stored_count,
                transaction_id=receipt.transaction_id,
                durability=broker_pb2.PAGE_CACHE,
            )
    return frame


def host_of_peer(peer: str) -> HostAddress:
    """The born host, from gRPC's name of a peer: `ipv4:127.0.0.1:5` or `ipv6:[::1]:5`."""
    family, _, address = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return UNKNOWN_HOST
    try:
        return HostAddress.parse(unquote(address))
    except ValueError:
        return UNKNOWN_HOST


# ---------------------------------------------------------------------------------- pulling


def wish_of(wanted: broker_pb2.Filter, expressions: CompiledExpressions) -> Wish:
    """Raises FilterIllegal for an expression that cannot be parsed."""
    if wanted.type == broker_pb2.SQL92:
        return expressions.of(wanted.expression)
    if wanted.type != broker_pb2.TAG:
        raise FilterIllegal(f"the filter has type {wanted.type}; it must be TAG or SQL92")
    return parse_tags(wanted.expression)


def pull_frame_parts(frame: PulledFrame) -> tuple[bytes, bytes]:
    """A PullFrame as it goes over the wire: end to end, these are one.

    Equal to protobuf's own encoding except for the order of fields. It exists because protobuf
    copies the records three times, and they are most of what a broker sends.
    """
    fetched = frame.fetched
    records = b""
    if fetched is not None:
        records = fetched.records
        result = broker_pb2.PullResult(
            code=READ_CODES[fetched.code],
            next_offset=fetched.next_offset,
            min_offset=fetched.min_offset,
            max_offset=fetched.max_offset,
            record_count=fetched.count,
            suggested_broker_id=fetched.suggested_broker_id,
        )
    else:
        assert frame.error is not None, "a frame has a result or an error"
        result = broker_pb2.PullResult(code=wire_code(frame.error), message=str(frame.error))
    head = result.SerializeToString()
    records_size = varint(len(records)) if records else b""
    size = len(head) + (1 + len(records_size) + len(records) if records else 0)
    parts = [_HANDLE_TAG, varint(frame.handle), _RESULT_TAG, varint(size), head]
    if records:
        parts += (_RECORDS_TAG, records_size)
    return b"".join(parts), records


# ---------------------------------------------------------------------------------- groups


def subscriptions_of(
    wanted: Sequence[broker_pb2.Subscription], expressions: CompiledExpressions
) -> tuple[Subscription, ...]:
    """Sorted by topic, so that equal subscriptions are equal values.

    Raises:
        FilterIllegal: an expression that cannot be parsed.
        InvalidArgument: more than a member may have, or text that cannot be shown.
    """
    found = [
        Subscription(
            one.topic, one.filter.expression or "*", is_sql=one.filter.type == broker_pb2.SQL92
        )
        for one in wanted
    ]
    check_subscriptions(found)
    for subscription in found:
        names.check_text("topic name", subscription.topic)
        expression = subscription.expression
        if subscription.is_sql:  # its words may be separated by newlines and tabs
            expression = expression.translate(_BLANKS)
        names.check_text("filter expression", expression)
    for one in wanted:
        wish_of(one.filter, expressions)
    return tuple(sorted(found, key=lambda subscription: subscription.topic))


def group_member(
    member: Member, now_s: float, sees: Callable[[str], bool] = lambda topic: True
) -> broker_pb2.GroupMember:
    """With the topics that the reader `sees`; members of its group must know all."""
    return broker_pb2.GroupMember(
        client_id=member.client_id,
        subscriptions=[
            broker_pb2.Subscription(
                topic=one.topic,
                filter=broker_pb2.Filter(
                    type=broker_pb2.SQL92 if one.is_sql else broker_pb2.TAG,
                    expression=one.expression,
                ),
            )
            for one in member.subscriptions
            if sees(one.topic)
        ],
        broadcasting=member.broadcasting,
        last_heartbeat_age_ms=max(0, int((now_s - member.last_heartbeat_s) * 1_000)),
    )


def official_member(
    client: Client, now_s: float, sees: Callable[[str], bool]
) -> broker_pb2.GroupMember:
    """As `group_member`."""
    return broker_pb2.GroupMember(
        client_id=client.client_id,
        subscriptions=[
            broker_pb2.Subscription(
                topic=topic,
                filter=_said(wish),
            )
            for topic, wish in client.subscriptions.items()
            if sees(topic)
        ],
        last_heartbeat_age_ms=max(0, int((now_s - client.heard_s) * 1_000)),
        official=client.title,
    )


def receiving_member(
    receiver: Receiver, now_s: float, sees: Callable[[str], bool]
) -> broker_pb2.GroupMember:
    """As `group_member`."""
    return broker_pb2.GroupMember(
        client_id=receiver.client_id,
        subscriptions=[
            broker_pb2.Subscription(topic=topic, filter=_said(wish))
            for topic, wish in receiver.subscriptions.items()
            if sees(topic)
        ],
        last_heartbeat_age_ms=max(0, int((now_s - receiver.heard_s) * 1_000)),
        official=SIMPLE_CONSUMER,
    )


class _Wanted(Protocol):
    """What a member that assigns queues itself wants of a topic."""

    @property
    def expression(self) -> str: ...

    @property
    def is_sql(self) -> bool: ...


def self_assigning_member(
    member: SelfMember[_Wanted], now_s: float, sees: Callable[[str], bool]
) -> broker_pb2.GroupMember:
    """As `group_member`."""
    return broker_pb2.GroupMember(
        client_id=member.client_id,
        subscriptions=[
            broker_pb2.Subscription(
                topic=topic,
                filter=_said(wanted.expression if wanted.is_sql else _tags(wanted.expression)),
            )
            for topic, wanted in member.wants.items()
            if sees(topic)
        ],
        broadcasting=member.is_broadcasting,
        last_heartbeat_age_ms=max(0, int((now_s - member.heard_s) * 1_000)),
        official=printable(member.title),
    )


def _tags(expression: str) -> tuple[str, ...] | None:
    try:
        return parse_tags(expression)
    except FilterIllegal:
        return (printable(expression.translate(_BLANKS)),)


def _said(wish: tuple[str, ...] | str | None) -> broker_pb2.Filter:
    if isinstance(wish, str):
        shown = printable(wish.translate(_BLANKS))
        return broker_pb2.Filter(type=broker_pb2.SQL92, expression=shown)
    return broker_pb2.Filter(expression="" if wish is None else " || ".join(wish))


def members_changed(view: GroupView, now_s: float) -> broker_pb2.MembersChanged:
    return broker_pb2.MembersChanged(
        members=[group_member(member, now_s) for member in view.members],
        generation=view.generation,
    )


# ---------------------------------------------------------------------------------- statistics


def stats_message(
    identity: common_pb2.BrokerIdentity, now: BrokerStatistics
) -> broker_pb2.BrokerStats:
    store, counters = now.store, now.counters
    retention = store.retention
    return broker_pb2.BrokerStats(
        identity=identity,
        role=common_pb2.MASTER if now.is_master else common_pb2.SLAVE,
        epoch=now.epoch,
        version=now.version,
        uptime_ms=now.uptime_ms,
        log_min_offset=store.min_offset,
        log_appended_end=store.appended_end,
        log_flushed_end=store.flushed_end,
        log_confirmed_end=store.confirmed_end,
        log_dispatched_end=store.dispatched_end,
        flush_mode=now.flush_mode,
        writable=now.is_writable,
        not_writable_reason=now.not_writable_reason,
        messages_in=counters.messages_in,
        bytes_in=counters.bytes_in,
        messages_out=counters.messages_out,
        bytes_out=counters.bytes_out,
        batches_in=counters.batches_in,
        refused=counters.refused,
        duplicates_dropped=counters.duplicates_dropped,
        fsyncs=store.flushes,
        topics=now.topics,
        queues=store.queue_count,
        misplaced_records=store.misplaced_records,
        groups=now.groups,
        members=now.members,
        send_streams=counters.send_streams,
        pull_streams=counters.pull_streams,
        cpu_seconds=now.process.cpu_seconds,
        resident_bytes=now.process.resident_bytes,
        inflight_bytes=store.appended_end - store.flushed_end,
        loop_delay_p99_ms=now.loop_delay_p99_ms,
        cold_reads=counters.cold_reads,
        cold_bytes=counters.cold_bytes,
        cold_reads_waiting=counters.cold_reads_waiting,
        disk_total_bytes=max(0, retention.space.total_bytes),
        disk_free_bytes=max(0, retention.space.free_bytes),
        log_segments=store.segment_count,
        removed_segments=retention.removed_segments,
        removed_bytes=retention.removed_bytes,
        removed_unread_messages=retention.removed_unread_messages,
        removed_unread=unread_removals(retention.removed_unread),
        replication_mode=now.replication.mode,
        replicas=_replica_progress(now.replication),
        slave=_slave_progress(now.replication),
    )


def unread_removals(removals: Sequence[UnreadRemoval]) -> list[broker_pb2.UnreadRemoval]:
    """The first ones, which are the largest, without those that the caller may not see."""
    sees = topics_seen()
    return [
        broker_pb2.UnreadRemoval(
            group=each.group, topic=each.topic, queue_id=each.queue_id, messages=each.messages
        )
        for each in removals[:REMOVALS_MAX]
        if sees(each.topic)
    ]


def _replica_progress(replication: ReplicationStatistics) -> list[broker_pb2.ReplicaProgress]:
    """A master's replicas."""
    return [
        broker_pb2.ReplicaProgress(
            broker_id=one.broker_id,
            connected=one.is_connected,
            in_sync=one.is_in_sync,
            acknowledged_end=one.acknowledged_end,
            lag_bytes=one.lag_bytes,
            lag_ms=one.lag_ms,
        )
        for one in replication.replicas
    ]


def _slave_progress(replication: ReplicationStatistics) -> broker_pb2.SlaveProgress | None:
    """A slave's view of its master; None on a master."""
    slave = replication.slave
    if slave is None:
        return None
    return broker_pb2.SlaveProgress(
        master_id=slave.master_id,
        connected=slave.is_connected,
        master_end=slave.master_end,
        confirmed_end=slave.confirmed_end,
        trouble=slave.trouble,
    )


def remaining_message(
    remaining: Remaining, *, refuses: bool, refuses_in_ms: int
) -> broker_pb2.RemainingDescription:
    """As many readers as fit an answer."""
    return broker_pb2.RemainingDescription(
        refuses=refuses,
        refuses_in_ms=refuses_in_ms,
        readers=[
            broker_pb2.RemainingReader(group=group, topic=topic, unread=unread)
            for group, topic, unread in remaining.readers[:READERS_LISTED_MAX]
        ],
        unread=sum(unread for _, _, unread in remaining.readers),
        delayed=remaining.delayed,
        open_transactions=remaining.open_transactions,
        set_aside=remaining.set_aside,
        in_flight=remaining.in_flight,
        dead_letters=remaining.dead_letters,
        schedules=remaining.schedules,
    )
