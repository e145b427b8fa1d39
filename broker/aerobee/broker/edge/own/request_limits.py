"""What requests to a broker may cost: the limits of all their fields.

A name is limited here to a length that its own rule (`runtime.names`) can check cheaply; that rule
decides what is a legal name. What a broker keeps after the request (subscriptions, requested
queues) has the narrower limits.
"""

from __future__ import annotations

from aerobee.broker.edge.own.long_frames import read_long_frame
from aerobee.broker.groups.members import SUBSCRIPTIONS_PER_MEMBER_MAX
from aerobee.broker.groups.ownership import QUEUES_PER_MEMBER_MAX
from aerobee.broker.transactions.end_turns import TOGETHER_MAX
from aerobee.cluster_view.ring_wishes import WISHES_PER_FRAME_MAX
from aerobee.domain.tag_expression import EXPRESSION_LENGTH_MAX
from aerobee.rpc.request_limits import Limit, RequestLimits
from aerobee.rpc.server_engine import FRAME_BYTES_MAX
from aerobee.store.format.recall_handle import HANDLE_CHARACTERS_MAX
from aerobee.store.format.record_layout import PROPERTIES_BYTES_MAX
from aerobee.v1 import audit_pb2, broker_pb2, replication_pb2

KIB = 1024
MIB = 1024 * KIB

BATCHES_PER_FRAME_MAX = 16_384
RECORD_BYTES_MIN = 84
"""Size of a record's fixed fields: it bounds the number of records in a frame."""
QUEUES_PER_REQUEST_MAX = 65_536
NAMES_PER_REQUEST_MAX = 10_000
EPOCHS_MAX = 32_768
FAILURES_PER_REQUEST_MAX = 1_024

_NAME_BYTES_MAX = 1_024
_NAME = Limit(length=_NAME_BYTES_MAX)
_HANDLE = Limit(length=HANDLE_CHARACTERS_MAX)
_KEPT_NAME = Limit(length=255)
# Blanks around an expression do not count towards its own limit.
_EXPRESSION = Limit(length=2 * EXPRESSION_LENGTH_MAX)
_QUEUES = Limit(count=QUEUES_PER_REQUEST_MAX)
_PROPERTY_BYTES_MAX = PROPERTIES_BYTES_MAX + 1

_REQUEST_BYTES_MAX = {
    "SendFrame": FRAME_BYTES_MAX,
    # A message between its own limit and this one gets MESSAGE_TOO_LARGE.
    "SendRequest": 9 * MIB,
    "ListScheduledRequest": 256 * KIB,
    "RecallScheduledRequest": 8 * KIB,
    "DeliverScheduledNowRequest": 8 * KIB,
    "RescheduleRequest": 8 * KIB,
    "ListSchedulesRequest": 8 * KIB,
    # A body between its own limit and this one gets MESSAGE_TOO_LARGE.
    "PutScheduleRequest": 256 * KIB,
    "ActOnScheduleRequest": 8 * KIB,
    "EndTransactionRequest": 64 * KIB,
    "CheckTransactionRequest": 64 * KIB,
    "EndTransactionsRequest": 256 * KIB,
    "ListTransactionsRequest": 64 * KIB,
    "WatchChecksRequest": 128 * KIB,
    "PullCommand": 256 * KIB,
    "PullRequest": 256 * KIB,
    "PopRequest": 256 * KIB,
    "AcknowledgeRequest": MIB,
    "ChangeInvisibleRequest": MIB,
    "RejectRequest": MIB,
    "RingWishes": 1 * MIB,
    # Answers repeat the topics and must fit a message as well.
    "CommitOffsetsRequest": 8 * MIB,
    "QueryOffsetsRequest": 8 * MIB,
    "QueryBoundsRequest": 8 * MIB,
    "SearchByTimestampRequest": 8 * MIB,
    "ResetOffsetsRequest": 8 * MIB,
    "DeleteOffsetsRequest": 512 * KIB,
    "SendBackRequest": MIB,
    "SettleDeadLettersRequest": 64 * KIB,
    "MemberEvent": 12 * MIB,
    "ListGroupsRequest": KIB,
    "ListGroupLagsRequest": 8 * KIB,
    "ListClientsRequest": 8 * KIB,
    "DescribeGroupRequest": 8 * KIB,
    "DeleteGroupRequest": 8 * KIB,
    "ConfigureGroupRequest": 32 * KIB,
    "GetStatsRequest": KIB,
    "GetMessageRequest": 8 * KIB,
    "QueryMessagesRequest": 256 * KIB,
    "CleanStoreRequest": KIB,
    "HandOverRequest": KIB,
    "DescribeRemainingRequest": 8 * KIB,
    "SnapshotRequest": 2 * MIB,
    "ChecksumLogRequest": KIB,
    "ReplicaEvent": 2 * MIB,
}

_FIELDS = {
    # Most frames are shorter than this, and inspecting each batch would cost a few per cent of the
    # time of storing it. A batch with an overlong topic is refused later on its own; 1 MiB of empty
    # batches is refused after 20 ms.
    "SendFrame.batches": Limit(count=BATCHES_PER_FRAME_MAX, looked_into_from=MIB),
    "RecordBatch.topic": _NAME,
    "RecordBatch.records": Limit(length=FRAME_BYTES_MAX - 64 * KIB),
    "RecordBatch.record_sizes": Limit(
        count=FRAME_BYTES_MAX // RECORD_BYTES_MIN, total=FRAME_BYTES_MAX // RECORD_BYTES_MIN
    ),
    "SendRequest.topic": _NAME,
    "SendRequest.body": Limit(length=8 * MIB),
    "SendRequest.tag": Limit(length=_PROPERTY_BYTES_MAX),
    "SendRequest.keys": Limit(count=4_096, length=_PROPERTY_BYTES_MAX),
    "SendRequest.properties": Limit(count=4_096, length=_PROPERTY_BYTES_MAX),
    "ListScheduledRequest.topic": _NAME,
    "ListScheduledRequest.key": Limit(length=_PROPERTY_BYTES_MAX),
    "ListScheduledRequest.after": Limit(length=64),
    "RecallScheduledRequest.recall_handle": _HANDLE,
    "DeliverScheduledNowRequest.recall_handle": _HANDLE,
    "RescheduleRequest.recall_handle": _HANDLE,
    "ListSchedulesRequest.topic": _NAME,
    "ListSchedulesRequest.name": _NAME,
    "ScheduleDefinition.name": _NAME,
    "ScheduleDefinition.topic": _NAME,
    "ScheduleDefinition.body": Limit(length=192 * KIB),
    "ScheduleDefinition.tag": Limit(length=_PROPERTY_BYTES_MAX),
    "ScheduleDefinition.keys": Limit(count=64, length=_PROPERTY_BYTES_MAX),
    "ScheduleDefinition.properties": Limit(count=1_024, length=_PROPERTY_BYTES_MAX),
    "ScheduleDefinition.cron": _NAME,
    "ScheduleDefinition.zone": _NAME,
    "ActOnScheduleRequest.name": _NAME,
    "ActOnScheduleRequest.topic": _NAME,
    "EndTransactionRequest.topic": _NAME,
    "EndTransactionRequest.transaction_id": Limit(length=_PROPERTY_BYTES_MAX),
    "CheckTransactionRequest.topic": _NAME,
    "CheckTransactionRequest.transaction_id": Limit(length=_PROPERTY_BYTES_MAX),
    "EndTransactionsRequest.topic": _NAME,
    "EndTransactionsRequest.committed": Limit(count=TOGETHER_MAX, length=_NAME_BYTES_MAX),
    "EndTransactionsRequest.rolled_back": Limit(count=TOGETHER_MAX, length=_NAME_BYTES_MAX),
    "ListTransactionsRequest.topic": _NAME,
    "WatchChecksRequest.topics": Limit(count=256, length=255),
    "ListTransactionsRequest.transaction_id": Limit(length=_PROPERTY_BYTES_MAX),
    "PullRequest.topic": _NAME,
    "PullRequest.group": _NAME,
    "PullRequest.client_id": _NAME,
    "Filter.expression": _EXPRESSION,
    "PopRequest.group": _NAME,
    "PopRequest.topic": _NAME,
    "PopRequest.client_id": _NAME,
    "PopRequest.attempt_id": Limit(length=64),
    "AcknowledgeRequest.group": _NAME,
    "AcknowledgeRequest.topic": _NAME,
    "AcknowledgeRequest.messages": Limit(count=FAILURES_PER_REQUEST_MAX),
    "ChangeInvisibleRequest.group": _NAME,
    "ChangeInvisibleRequest.topic": _NAME,
    "ChangeInvisibleRequest.messages": Limit(count=FAILURES_PER_REQUEST_MAX),
    "RejectRequest.group": _NAME,
    "RejectRequest.topic": _NAME,
    "RejectRequest.client_id": _NAME,
    "RejectRequest.messages": Limit(count=FAILURES_PER_REQUEST_MAX),
    "RejectRequest.reason_class": Limit(length=4 * KIB),
    "RejectRequest.reason": Limit(length=16 * KIB),
    "Popped.topic": _NAME,
    "RingWishes.wishes": Limit(count=WISHES_PER_FRAME_MAX),
    "RingWish.topic": _KEPT_NAME,
    "RingWish.group": _KEPT_NAME,
    "CommitOffsetsRequest.group": _NAME,
    "CommitOffsetsRequest.client_id": _NAME,
    "CommitOffsetsRequest.offsets": _QUEUES,
    "QueueOffset.topic": _NAME,
    "QueryOffsetsRequest.group": _NAME,
    "QueryOffsetsRequest.queues": _QUEUES,
    "TopicQueue.topic": _NAME,
    "QueryBoundsRequest.queues": _QUEUES,
    "SearchByTimestampRequest.queues": _QUEUES,
    "ResetOffsetsRequest.group": _NAME,
    "ResetOffsetsRequest.offsets": _QUEUES,
    "DeleteOffsetsRequest.group": _NAME,
    "DeleteOffsetsRequest.topic": _NAME,
    "DeleteOffsetsRequest.queue_ids": _QUEUES,
    "SendBackRequest.group": _NAME,
    "SendBackRequest.client_id": _NAME,
    "SendBackRequest.topic": _NAME,
    "SendBackRequest.messages": Limit(count=FAILURES_PER_REQUEST_MAX),
    "SettleDeadLettersRequest.group": _NAME,
    "SettleDeadLettersRequest.offsets": Limit(count=FAILURES_PER_REQUEST_MAX),
    "Resend.topic": _NAME,
    "FailedMessage.reason_class": Limit(length=4 * KIB),
    "FailedMessage.reason": Limit(length=16 * KIB),
    "Join.group": _NAME,
    "Join.client_id": _NAME,
    "Join.instance": _KEPT_NAME,
    "Join.version": _KEPT_NAME,
    "Join.subscriptions": Limit(count=SUBSCRIPTIONS_PER_MEMBER_MAX),
    "Join.held": Limit(count=QUEUES_PER_MEMBER_MAX),
    "Subscription.topic": _KEPT_NAME,
    "HeldLease.topic": _KEPT_NAME,
    "Heartbeat.subscriptions": Limit(count=SUBSCRIPTIONS_PER_MEMBER_MAX),
    "AcquireLease.topic": _KEPT_NAME,
    "ReleaseLease.topic": _KEPT_NAME,
    "ListGroupLagsRequest.topic": _NAME,
    "ListGroupLagsRequest.group": _NAME,
    "ListClientsRequest.search": _NAME,
    "ClientPlace.client_id": _NAME,
    "ClientPlace.group": _NAME,
    "DescribeGroupRequest.group": _NAME,
    "DeleteGroupRequest.group": _NAME,
    "ConfigureGroupRequest.group": _NAME,
    "DelayLevelBackOff.delays_ms": Limit(count=1_000),
    "StepBackOff.delays_ms": Limit(count=1_000),
    "GetMessageRequest.offset_message_id": _NAME,
    "DescribeRemainingRequest.topic": _NAME,
    "QueryMessagesRequest.topic": _NAME,
    "QueryMessagesRequest.key": Limit(length=_PROPERTY_BYTES_MAX),
    "QueryMessagesRequest.unique_key": Limit(length=_PROPERTY_BYTES_MAX),
    "SnapshotRequest.tables": Limit(count=64),
    "SnapshotRequest.topics": Limit(count=NAMES_PER_REQUEST_MAX, length=1_024),
    "SnapshotRequest.groups": Limit(count=NAMES_PER_REQUEST_MAX, length=1_024),
    "FrameHeader.cluster": _NAME,
    "FrameHeader.broker_name": _NAME,
    "ReplicaName.incarnation": _KEPT_NAME,
    "ReplicaHello.instance": _KEPT_NAME,
    "ReplicaHello.epochs": Limit(count=EPOCHS_MAX),
    "ReplicaHello.tables": Limit(count=1_024, length=1_024),
}


def broker_request_limits() -> RequestLimits:
    """Of every service that a broker serves."""
    files = (broker_pb2.DESCRIPTOR, audit_pb2.DESCRIPTOR, replication_pb2.DESCRIPTOR)
    return RequestLimits(
        [service for file in files for service in file.services_by_name.values()],
        _REQUEST_BYTES_MAX,
        _FIELDS,
        package="aerobee.v1",
        views={"SendFrame": read_long_frame},
    )
