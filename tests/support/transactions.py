"""Transactions over raw calls of apache.rocketmq.v2, and what a broker's log has of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.record import Record, iterate_records
from aerobee.v1 import broker_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.support.v2_calls import V2, sent_message

ORDERS = "orders"
QUEUES = 4


def transactional(name: str = ORDERS, message_type: str = "TRANSACTION") -> TopicConfig:
    """A topic that takes messages of transactions."""
    return TopicConfig(
        name=name,
        read_queue_count=QUEUES,
        write_queue_count=QUEUES,
        attributes={"message.type": message_type},
    )


def half_message(transaction_id: str, body: bytes = b"body", **system: Any) -> v2.Message:
    """As clients send it."""
    return sent_message(
        ORDERS, body, message_id=transaction_id, message_type=v2.TRANSACTION, **system
    )


def end_request(
    transaction_id: str, resolution: v2.TransactionResolution, topic: str = ORDERS
) -> service_pb2.EndTransactionRequest:
    """As clients end it."""
    return service_pb2.EndTransactionRequest(
        topic=v2.Resource(name=topic),
        message_id=transaction_id,
        transaction_id=transaction_id,
        resolution=resolution,
        source=v2.SOURCE_CLIENT,
    )


async def end(
    client: V2, transaction_id: str, resolution: v2.TransactionResolution, topic: str = ORDERS
) -> v2.Status:
    """The answer to an end."""
    answer = await client.call("EndTransaction", end_request(transaction_id, resolution, topic))
    status: v2.Status = answer.status
    return status


async def stored(broker: Any, topic: str, queues: int = QUEUES) -> list[Record]:
    """What consumers see of a topic, queue by queue."""
    found: list[Record] = []
    for queue_id in range(queues):
        offset = 0
        while True:
            answer = await broker.pull.Pull(
                broker_pb2.PullRequest(topic=topic, queue_id=queue_id, offset=offset)
            )
            records = list(iterate_records(answer.records))
            found += records
            if not records:
                break
            offset = records[-1].queue_offset + 1
    return found


async def seen(broker: Any, topic: str = ORDERS) -> list[bytes]:
    """The bodies that consumers see, sorted."""
    return sorted(bytes(record.body) for record in await stored(broker, topic))


class Asked:
    """A producer with a stream that records what it is asked."""

    def __init__(self, client: V2, *topics: str) -> None:
        """`topics`: the topics in its settings."""
        self.client = client
        self.asked: list[v2.Message] = []
        self.bodies: dict[str, bytes] = {}
        """By transaction."""
        self._topics = topics
        self._stream: Any = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def ids(self) -> list[str]:
        """The transactions it was asked about."""
        return [message.system_properties.message_id for message in self.asked]

    async def open(self) -> Asked:
        self._stream = self.client.telemetry()
        topics = [v2.Resource(name=each) for each in self._topics]
        settings = v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=topics))
        await self._stream.write(service_pb2.TelemetryCommand(settings=settings))
        await self._stream.read()
        self._reading = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        with suppress(grpc.aio.AioRpcError):  # its node has died
            while (command := await self._stream.read()) is not grpc.aio.EOF:
                if command.HasField("recover_orphaned_transaction_command"):
                    recover = command.recover_orphaned_transaction_command
                    message = recover.message
                    message_id = message.system_properties.message_id
                    assert recover.transaction_id.partition("~")[0] == message_id
                    self.asked.append(message)
                    self.bodies[recover.transaction_id] = message.body
                    await self.answer(recover.transaction_id)

    async def answer(self, transaction_id: str) -> None:
        """Answers that it does not know."""

    async def close(self) -> None:
        """Raises any error of an answer."""
        self._stream.cancel()
        if self._reading is not None:
            with suppress(asyncio.CancelledError):
                await self._reading
