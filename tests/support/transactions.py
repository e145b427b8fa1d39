"""Transactions over raw calls of apache.rocketmq.v2, and what a broker's log says of them."""

from __future__ import annotations

from typing import Any

from aerobee.broker.store.tables.config_tables import TopicConfig
from aerobee.store_format.record import Record, iterate_records
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
