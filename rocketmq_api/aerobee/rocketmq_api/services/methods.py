"""The calls that one node makes at another for a client, as typed values."""

from __future__ import annotations

from typing import Final

from aerobee.cluster_view.methods import Method
from apache.rocketmq.v2 import service_pb2

SERVICE: Final = service_pb2.DESCRIPTOR.services_by_name["MessagingService"]
SERVICE_NAME: Final = str(SERVICE.full_name)
_PREFIX: Final = f"/{SERVICE_NAME}/"

SEND_MESSAGE: Final = Method(
    _PREFIX + "SendMessage", service_pb2.SendMessageRequest, service_pb2.SendMessageResponse
)
RECALL_MESSAGE: Final = Method(
    _PREFIX + "RecallMessage", service_pb2.RecallMessageRequest, service_pb2.RecallMessageResponse
)
END_TRANSACTION: Final = Method(
    _PREFIX + "EndTransaction",
    service_pb2.EndTransactionRequest,
    service_pb2.EndTransactionResponse,
)
TELEMETRY: Final = Method(
    _PREFIX + "Telemetry", service_pb2.TelemetryCommand, service_pb2.TelemetryCommand
)
HEARTBEAT: Final = Method(
    _PREFIX + "Heartbeat", service_pb2.HeartbeatRequest, service_pb2.HeartbeatResponse
)
NOTIFY_CLIENT_TERMINATION: Final = Method(
    _PREFIX + "NotifyClientTermination",
    service_pb2.NotifyClientTerminationRequest,
    service_pb2.NotifyClientTerminationResponse,
)
PULL_MESSAGE: Final = Method(
    _PREFIX + "PullMessage", service_pb2.PullMessageRequest, service_pb2.PullMessageResponse
)
UPDATE_OFFSET: Final = Method(
    _PREFIX + "UpdateOffset", service_pb2.UpdateOffsetRequest, service_pb2.UpdateOffsetResponse
)
GET_OFFSET: Final = Method(
    _PREFIX + "GetOffset", service_pb2.GetOffsetRequest, service_pb2.GetOffsetResponse
)
QUERY_OFFSET: Final = Method(
    _PREFIX + "QueryOffset", service_pb2.QueryOffsetRequest, service_pb2.QueryOffsetResponse
)
RECEIVE_MESSAGE: Final = Method(
    _PREFIX + "ReceiveMessage",
    service_pb2.ReceiveMessageRequest,
    service_pb2.ReceiveMessageResponse,
)
ACK_MESSAGE: Final = Method(
    _PREFIX + "AckMessage", service_pb2.AckMessageRequest, service_pb2.AckMessageResponse
)
CHANGE_INVISIBLE_DURATION: Final = Method(
    _PREFIX + "ChangeInvisibleDuration",
    service_pb2.ChangeInvisibleDurationRequest,
    service_pb2.ChangeInvisibleDurationResponse,
)
FORWARD_TO_DEAD_LETTERS: Final = Method(
    _PREFIX + "ForwardMessageToDeadLetterQueue",
    service_pb2.ForwardMessageToDeadLetterQueueRequest,
    service_pb2.ForwardMessageToDeadLetterQueueResponse,
)
