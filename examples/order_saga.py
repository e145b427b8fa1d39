"""Orders in a database, and payments: each step sends its message if, and only if, its own
transaction commits, and a payment that fails undoes the order.

    python examples/order_saga.py
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import suppress

from aerobee import (
    CheckAnswer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
    TransactionCheck,
)

ORDERS, PAYMENTS = "saga_orders", "saga_payments"
CREDIT = 100


class OrderBook:
    """The database of the order service: a file, unlike here, where each run begins anew."""

    def __init__(self, file: str = ":memory:") -> None:
        self.settled = asyncio.Event()
        self.database = sqlite3.connect(file)
        self.database.execute("create table if not exists orders (id primary key, price, state)")

    async def place(self, producer: Producer, order: str, price: int) -> None:
        """Stores the order and announces it, both or neither."""
        body = json.dumps({"id": order, "price": price}).encode()
        async with producer.transaction(Message(ORDERS, body, keys=[order])):
            with self.database:
                self.database.execute("insert into orders values (?, ?, 'placed')", [order, price])

    async def check(self, check: TransactionCheck) -> CheckAnswer:
        """If this process dies between the two, a broker asks: the database knows."""
        (order,) = check.message.keys
        return CheckAnswer.COMMIT if self.state(order) else CheckAnswer.ROLLBACK

    async def settle(self, messages: Sequence[ReceivedMessage]) -> None:
        """A message may come twice: only an order that is still open changes."""
        for message in messages:
            payment = json.loads(message.body)
            state = "paid" if payment["paid"] else "cancelled"
            with self.database:
                self.database.execute(
                    "update orders set state = ? where id = ? and state = 'placed'",
                    [state, payment["id"]],
                )
        if self.is_settled():
            self.settled.set()

    def state(self, order: str) -> str | None:
        row = self.database.execute("select state from orders where id = ?", [order]).fetchone()
        return row[0] if row else None

    def is_settled(self) -> bool:
        query = "select 1 from orders where state = 'placed'"
        return self.database.execute(query).fetchone() is None


async def main() -> None:
    book = OrderBook()
    async with Producer(check_transaction=book.check, transaction_topics=[ORDERS]) as producer:

        async def pay(messages: Sequence[ReceivedMessage]) -> None:
            """The payment service: answers each order by a message."""
            for message in messages:
                order = json.loads(message.body)
                body = json.dumps({"id": order["id"], "paid": order["price"] <= CREDIT}).encode()
                await producer.send(Message(PAYMENTS, body, keys=[order["id"]]))

        await book.place(producer, "o-1", 60)
        await book.place(producer, "o-2", 600)
        try:
            await book.place(producer, "o-1", 70)
        except sqlite3.IntegrityError:
            print("o-1 a second time: refused, and nobody hears of it")
        await producer.send(Message(PAYMENTS, b'{"id": "o-0", "paid": false}'))

        payer = PushConsumer("saga-payer", pay, start_from=StartFrom.FIRST)
        settler = PushConsumer("saga-settler", book.settle, start_from=StartFrom.FIRST)
        async with payer.subscribe(ORDERS), settler.subscribe(PAYMENTS):
            await asyncio.wait_for(book.settled.wait(), timeout=60)
    print("o-1:", book.state("o-1"))
    print("o-2:", book.state("o-2"))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
