"""A service with FastStream: orders in, bills out; what cannot be billed is a dead letter.

python examples/faststream_bills.py
echo '{"id": 17, "plugs": 2}' | aerobee produce orders_to_bill
aerobee consume bills --group look --count 1
"""

from __future__ import annotations

import asyncio

from faststream import FastStream
from pydantic import BaseModel

from aerobee import ConsumerConfig, Reject, StartFrom
from aerobee.integrations.faststream import AerobeeBroker

broker = AerobeeBroker(consumer_config=ConsumerConfig(await_topics=True))
app = FastStream(broker)


class Order(BaseModel):
    id: int
    plugs: int


class Bill(BaseModel):
    order: int
    euros: int


@broker.subscriber("orders_to_bill", group="billing_service", start_from=StartFrom.FIRST)
@broker.publisher("bills")
async def bill(order: Order) -> Bill:
    """If it raises anything but `Reject`, the order comes again, as the group is configured."""
    if order.plugs < 1:
        raise Reject(f"order {order.id} has no plugs")
    return Bill(order=order.id, euros=3 * order.plugs)


if __name__ == "__main__":
    asyncio.run(app.run())
