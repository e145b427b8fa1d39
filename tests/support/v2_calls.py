"""Raw calls of apache.rocketmq.v2, with the metadata that every client sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2, service_pb2_grpc

CLIENT_ID = "host@1@0@abc"
METADATA = {"x-mq-client-id": CLIENT_ID, "x-mq-language": "PYTHON", "x-mq-client-version": "5.1.2"}


@dataclass(slots=True)
class Pulled:
    """An answer to a pull, put together."""

    code: int = 0
    messages: list[v2.Message] = field(default_factory=list)
    next_offset: int = -1


class V2:
    """A client that is nothing but its stub."""

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
