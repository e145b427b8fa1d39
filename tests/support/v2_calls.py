"""Raw calls of apache.rocketmq.v2, with the metadata that every client sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from aerobee.rocketmq_api.times import duration
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2, service_pb2_grpc

CLIENT_ID = "host@1@0@abc"
METADATA = {"x-mq-client-id": CLIENT_ID, "x-mq-language": "PYTHON", "x-mq-client-version": "5.1.2"}


@dataclass(slots=True)
class Pulled:
    """An answer to a pull, reassembled."""

    code: int = 0
    messages: list[v2.Message] = field(default_factory=list)
    next_offset: int = -1


@dataclass(slots=True)
class Received:
    """An answer to a poll, reassembled."""

    code: int = 0
    words: str = ""
    messages: list[v2.Message] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [each.system_properties.message_id for each in self.messages]


class V2:
    """A client that consists only of its stub."""

    def __init__(
        self, channel: grpc.aio.Channel, metadata: Mapping[str, str] | None = None
    ) -> None:
        self._stub: Any = service_pb2_grpc.MessagingServiceStub(channel)
        self.metadata = tuple({**METADATA, **(metadata or {})}.items())

    async def call(self, name: str, request: Any, *, timeout: float = 10) -> Any:
        return await getattr(self._stub, name)(request, metadata=self.metadata, timeout=timeout)

    async def send(self, *messages: v2.Message) -> service_pb2.SendMessageResponse:
        answer: service_pb2.SendMessageResponse = await self.call(
            "SendMessage", service_pb2.SendMessageRequest(messages=messages)
        )
        return answer

    async def route(self, topic: str) -> service_pb2.QueryRouteResponse:
        request = service_pb2.QueryRouteRequest(topic=v2.Resource(name=topic))
        answer: service_pb2.QueryRouteResponse = await self.call("QueryRoute", request)
        return answer

    async def pull(
        self, message_queue: v2.MessageQueue, *, timeout: float = 30, **changes: Any
    ) -> Pulled:
        fields = {"group": v2.Resource(name="billing"), "batch_size": 32, **changes}
        request = service_pb2.PullMessageRequest(message_queue=message_queue, **fields)
        found = Pulled()
        call = self._stub.PullMessage(request, metadata=self.metadata, timeout=timeout)
        async for part in call:
            kind = part.WhichOneof("content")
            if kind == "message":
                found.messages.append(part.message)
            elif kind == "status":
                found.code = part.status.code
            else:
                found.next_offset = part.next_offset
        return found

    async def receive(
        self,
        topic: str,
        group: str,
        *,
        count: int = 32,
        wait_s: float = 5.0,
        invisible_s: float = 10.0,
        tags: str = "*",
        sql: str | None = None,
        broker: str = "",
        **changes: Any,
    ) -> Received:
        """As a simple consumer does it; `broker`: the one that it names."""
        request = service_pb2.ReceiveMessageRequest(
            group=v2.Resource(name=group),
            message_queue=v2.MessageQueue(
                topic=v2.Resource(name=topic), broker=v2.Broker(name=broker)
            ),
            filter_expression=v2.FilterExpression(
                type=v2.TAG if sql is None else v2.SQL, expression=tags if sql is None else sql
            ),
            batch_size=count,
            invisible_duration=duration(int(invisible_s * 1_000)),
            long_polling_timeout=duration(int(wait_s * 1_000)),
            **changes,
        )
        found = Received()
        call = self._stub.ReceiveMessage(request, metadata=self.metadata, timeout=wait_s + 10)
        async for part in call:
            kind = part.WhichOneof("content")
            if kind == "message":
                found.messages.append(part.message)
            elif kind == "status":
                found.code = part.status.code
                found.words = part.status.message
        return found

    async def acknowledge(self, group: str, *messages: v2.Message) -> list[int]:
        """The code for each message."""
        request = service_pb2.AckMessageRequest(
            group=v2.Resource(name=group),
            topic=messages[0].topic,
            entries=[
                service_pb2.AckMessageEntry(
                    message_id=each.system_properties.message_id,
                    receipt_handle=each.system_properties.receipt_handle,
                )
                for each in messages
            ],
        )
        answer = await self.call("AckMessage", request)
        return [entry.status.code for entry in answer.entries]

    async def change(
        self, group: str, message: v2.Message, invisible_s: float
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        request = service_pb2.ChangeInvisibleDurationRequest(
            group=v2.Resource(name=group),
            topic=message.topic,
            message_id=message.system_properties.message_id,
            receipt_handle=message.system_properties.receipt_handle,
            invisible_duration=duration(int(invisible_s * 1_000)),
        )
        answer: service_pb2.ChangeInvisibleDurationResponse = await self.call(
            "ChangeInvisibleDuration", request
        )
        return answer

    async def forward(self, group: str, message: v2.Message, *, by_id: bool = False) -> int:
        """`by_id`: without the handle, as the C++ client does it."""
        request = service_pb2.ForwardMessageToDeadLetterQueueRequest(
            group=v2.Resource(name=group),
            topic=message.topic,
            message_id=message.system_properties.message_id,
            receipt_handle="" if by_id else message.system_properties.receipt_handle,
        )
        answer = await self.call("ForwardMessageToDeadLetterQueue", request)
        return int(answer.status.code)

    def telemetry(self) -> Any:
        return self._stub.Telemetry(metadata=self.metadata)


def sent_message(
    topic: str, body: bytes = b"body", message_id: str = "ID-1", **system: Any
) -> v2.Message:
    """As clients send it; `system` are fields of SystemProperties."""
    properties = v2.SystemProperties(message_id=message_id, body_encoding=v2.IDENTITY, **system)
    properties.born_timestamp.GetCurrentTime()
    return v2.Message(topic=v2.Resource(name=topic), body=body, system_properties=properties)


def codes(entries: Iterable[service_pb2.SendResultEntry]) -> list[int]:
    return [entry.status.code for entry in entries]
