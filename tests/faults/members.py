"""A group member that speaks the protocol by hand, so that it can break its rules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime.errors import AerobeeError
from aerobee.v1 import broker_pb2
from tests.faults.serving import Client


class Member:
    """One membership stream."""

    def __init__(self, client: Client, *, group: str, client_id: str, instance: str = "i1") -> None:
        self.group = group
        self.client_id = client_id
        self._instance = instance
        self._call: Any = client.groups.Membership(timeout=30)

    async def join(
        self,
        *,
        session_timeout_ms: int = 1_000,
        held: Sequence[broker_pb2.HeldLease] = (),
        topic: str = "t",
    ) -> broker_pb2.Joined:
        """Raises the typed error of a refused join."""
        await self.tell(
            join=broker_pb2.Join(
                group=self.group,
                client_id=self.client_id,
                instance=self._instance,
                subscriptions=[broker_pb2.Subscription(topic=topic)],
                session_timeout_ms=session_timeout_ms,
                held=held,
            )
        )
        joined = await self.next("joined")
        assert isinstance(joined, broker_pb2.Joined)
        return joined

    async def tell(self, **event: Any) -> None:
        await self._call.write(broker_pb2.MemberEvent(**event))

    async def next(self, kind: str) -> Any:
        """The next event of a kind; others are passed over. Raises what ended the stream."""
        async with asyncio.timeout(15):
            while True:
                event = await self._call.read()
                assert event is not grpc.aio.EOF, f"the stream ended without {kind}"
                told = event.WhichOneof("event")
                if told == kind:
                    return getattr(event, kind)
                if told == "failed":
                    raise error_from_code(event.failed.code, event.failed.message)

    async def acquire(self, queue_id: int, topic: str = "t") -> broker_pb2.LeaseGranted:
        await self.tell(acquire=broker_pb2.AcquireLease(topic=topic, queue_id=queue_id))
        granted = await self.next("granted")
        assert isinstance(granted, broker_pb2.LeaseGranted)
        return granted

    async def beat(self, sequence: int = 1) -> broker_pb2.HeartbeatAck:
        await self.tell(heartbeat=broker_pb2.Heartbeat(sequence=sequence))
        acknowledged = await self.next("heartbeat")
        assert isinstance(acknowledged, broker_pb2.HeartbeatAck)
        return acknowledged

    async def ending(self) -> AerobeeError:
        """The typed error that the broker ends the stream with."""
        try:
            await self.next("nothing that is ever told")
        except AerobeeError as error:
            return error
        raise AssertionError("unreachable")

    async def leave(self) -> None:
        await self.tell(leave=broker_pb2.Leave())
        await self._call.done_writing()
        while await self._call.read() is not grpc.aio.EOF:
            pass

    def vanish(self) -> None:
        """As a process that died: the stream is gone, no Leave was sent."""
        self._call.cancel()
