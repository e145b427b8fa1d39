"""ReplicationService, on the master: hands slaves' streams to the sender."""

from __future__ import annotations

from typing import Any

import grpc

from aerobee.broker.edge.replicas.message_streams import MasterMessages
from aerobee.broker.replication.sender import ReplicationSender
from aerobee.rpc.outside import require_inside
from aerobee.rpc.serving import MethodTable

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = "aerobee.v1.ReplicationService"


class _SlaveFrames:
    """One call as a stream of bytes."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def read(self) -> bytes | None:
        data = await self._context.read()
        return None if data is grpc.aio.EOF else data

    async def write(self, frame: bytes) -> None:
        await self._context.write(frame)


class ReplicationService:
    """One call per slave."""

    def __init__(self, sender: ReplicationSender) -> None:
        self._sender = sender

    async def Replicate(self, request_iterator: object, context: Context) -> None:
        require_inside(context, "replication")
        await self._sender.serve(MasterMessages(_SlaveFrames(context)))


def add_replication_service(service: ReplicationService, server: MethodTable) -> None:
    """Register with messages as bytes both ways: their owners check and encode the frames."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Replicate": grpc.stream_stream_rpc_method_handler(
            service.Replicate, request_deserializer=None, response_serializer=None
        ),
    }
    server.add_registered_method_handlers(SERVICE_NAME, handlers)
