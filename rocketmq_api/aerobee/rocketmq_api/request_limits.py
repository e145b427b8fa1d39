"""The limits of requests of this API: a table of all their fields.

Wider than the rules for messages, names and settings, which have their own codes: anything that
reaches a limit here was made to do harm.
"""

from __future__ import annotations

from typing import Final

from aerobee.domain.tag_expression import EXPRESSION_LENGTH_MAX
from aerobee.rpc.request_limits import COUNTED_FROM, Limit, RequestLimits
from apache.rocketmq.v2 import service_pb2

KIB: Final = 1024
MIB: Final = 1024 * KIB

MESSAGES_PER_REQUEST_MAX: Final = 1_024
ENTRIES_PER_REQUEST_MAX: Final = 1_024
KEPT_NAMES_MAX: Final = 1_024
"""Topics named in a client's settings."""

_NAME: Final = Limit(length=1_024)
_HANDLE: Final = Limit(length=4 * KIB)
_TEXT: Final = Limit(length=64 * KIB)
_NONCE: Final = Limit(length=256)

_REQUEST_BYTES_MAX: Final = {
    "QueryRouteRequest": 64 * KIB,
    "HeartbeatRequest": 8 * KIB,
    # Sizes between the limits of messages and these are refused with the messages' codes.
    "SendMessageRequest": 16 * MIB,
    "QueryAssignmentRequest": 64 * KIB,
    "ReceiveMessageRequest": 256 * KIB,
    "AckMessageRequest": 8 * MIB,
    "ForwardMessageToDeadLetterQueueRequest": 64 * KIB,
    "PullMessageRequest": 256 * KIB,
    "UpdateOffsetRequest": 64 * KIB,
    "GetOffsetRequest": 64 * KIB,
    "QueryOffsetRequest": 64 * KIB,
    "EndTransactionRequest": 128 * KIB,
    # Some commands contain a message, which only servers send.
    "TelemetryCommand": 9 * MIB,
    "NotifyClientTerminationRequest": 8 * KIB,
    "ChangeInvisibleDurationRequest": 64 * KIB,
    "RecallMessageRequest": 64 * KIB,
    "SyncLiteSubscriptionRequest": 512 * KIB,
}

_FIELDS: Final = {
    "Resource.resource_namespace": _NAME,
    "Resource.name": _NAME,
    "Endpoints.addresses": Limit(count=64),
    "Address.host": _NAME,
    "Broker.name": _NAME,
    "MessageQueue.accept_message_types": Limit(count=64),
    # Shorter requests can break only messages' own limits, which are lower.
    "SendMessageRequest.messages": Limit(
        count=MESSAGES_PER_REQUEST_MAX, looked_into_from=COUNTED_FROM
    ),
    "Message.user_properties": Limit(count=1_024, length=64 * KIB, total=16_384),
    "Message.body": Limit(length=8 * MIB),
    "SystemProperties.tag": _TEXT,
    "SystemProperties.keys": Limit(count=4_096, length=64 * KIB, total=16_384),
    "SystemProperties.message_id": Limit(length=4 * KIB),
    "SystemProperties.born_host": _NAME,
    "SystemProperties.store_host": _NAME,
    "SystemProperties.receipt_handle": _HANDLE,
    "SystemProperties.message_group": Limit(length=4 * KIB),
    "SystemProperties.trace_context": _TEXT,
    "SystemProperties.lite_topic": _NAME,
    "Digest.checksum": _NAME,
    "DeadLetterQueue.topic": _NAME,
    "DeadLetterQueue.message_id": _NAME,
    "FilterExpression.expression": Limit(length=2 * EXPRESSION_LENGTH_MAX),
    "ReceiveMessageRequest.attempt_id": _NAME,
    "AckMessageRequest.entries": Limit(count=ENTRIES_PER_REQUEST_MAX),
    "AckMessageEntry.message_id": _NAME,
    "AckMessageEntry.receipt_handle": _HANDLE,
    "AckMessageEntry.lite_topic": _NAME,
    "ForwardMessageToDeadLetterQueueRequest.receipt_handle": _HANDLE,
    "ForwardMessageToDeadLetterQueueRequest.message_id": _NAME,
    "ForwardMessageToDeadLetterQueueRequest.lite_topic": _NAME,
    "ChangeInvisibleDurationRequest.receipt_handle": _HANDLE,
    "ChangeInvisibleDurationRequest.message_id": _NAME,
    "ChangeInvisibleDurationRequest.lite_topic": _NAME,
    "EndTransactionRequest.message_id": _NAME,
    "EndTransactionRequest.transaction_id": _NAME,
    "EndTransactionRequest.trace_context": _TEXT,
    "RecallMessageRequest.recall_handle": _HANDLE,
    "SyncLiteSubscriptionRequest.lite_topic_set": Limit(count=4_096, length=1_024),
    "Status.message": _TEXT,
    "CustomizedBackoff.next": Limit(count=1_024),
    "Publishing.topics": Limit(count=KEPT_NAMES_MAX),
    "Subscription.subscriptions": Limit(count=KEPT_NAMES_MAX),
    "UA.version": _NAME,
    "UA.platform": _NAME,
    "UA.hostname": _NAME,
    "Settings.client_properties": Limit(count=256, length=4 * KIB),
    "ThreadStackTrace.nonce": _NONCE,
    "ThreadStackTrace.thread_stack_trace": Limit(length=2 * MIB),
    "VerifyMessageResult.nonce": _NONCE,
    "VerifyMessageCommand.nonce": _NONCE,
    "PrintThreadStackTraceCommand.nonce": _NONCE,
    "ReconnectEndpointsCommand.nonce": _NONCE,
    "RecoverOrphanedTransactionCommand.transaction_id": _NAME,
    "NotifyUnsubscribeLiteCommand.lite_topic": _NAME,
}


def messaging_request_limits() -> RequestLimits:
    """The limits of MessagingService."""
    return RequestLimits(
        service_pb2.DESCRIPTOR.services_by_name.values(),
        _REQUEST_BYTES_MAX,
        _FIELDS,
        package="apache.rocketmq.v2",
    )
