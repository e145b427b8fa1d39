"""What a type checker must know of consuming, typed end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_type

from faststream import FastStream

from aerobee import (
    Batch,
    BlockingSimpleConsumer,
    ConsumeResult,
    Message,
    PoppedMessage,
    Producer,
    PushConsumer,
    Receipt,
    ReceivedMessage,
    Reject,
    RetryLater,
    SimpleConsumer,
    TypedTopic,
)
from aerobee.integrations.faststream import AerobeeBroker
from aerobee.integrations.faststream.annotations import AerobeeMessage
from aerobee.integrations.taskiq import AerobeeBroker as Tasks


@dataclass
class Order:
    id: int


orders = TypedTopic("orders", Order)
assert_type(orders, TypedTopic[Order])


def plain(messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
    return ConsumeResult.SUCCESS if messages else None


async def handle(order: Order, message: ReceivedMessage) -> RetryLater | None:
    assert_type(order.id, int)
    return RetryLater("later", after=3)


def batch(messages: Batch) -> None:
    messages.reject(0, "no")


async def main() -> None:
    PushConsumer("g", plain)
    PushConsumer("g", batch, consume_batch_max=3)
    PushConsumer("g", orders.listener(handle), order_by="key")
    PushConsumer("g", plain, order_by=lambda message: message.tag)
    async with Producer() as producer:
        assert_type(await producer.send(Message("orders", b"x")), Receipt)
        async with producer.transaction() as tx:
            await tx.send(orders.message(Order(1)))
    async with SimpleConsumer("g").subscribe("orders") as consumer:
        messages = await consumer.receive(3)
        assert_type(messages, list[PoppedMessage])
        assert_type(orders.read(messages[0]), Order)
        async with consumer.keeping(messages):
            await consumer.reject(messages[0], Reject("no"))
        await consumer.listen(plain)
    with BlockingSimpleConsumer("g").subscribe("orders") as blocking:
        assert_type(blocking.receive(), list[PoppedMessage])
    broker = AerobeeBroker()

    @broker.subscriber("orders", group="g")
    @broker.publisher("bills")
    async def bill(order: Order, message: AerobeeMessage) -> str:
        await message.nack(after=3)
        return str(order.id)

    await FastStream(broker).run()
    tasks = Tasks()

    @tasks.task
    async def double(number: int) -> int:
        return 2 * number

    assert_type((await (await double.kiq(3)).wait_result()).return_value, int)
