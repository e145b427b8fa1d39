"""An outbox: what a database transaction added is sent once, in the order of commits, by relays
that die; with SQLite, and with PostgreSQL where there is one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import sqlalchemy as sql
from sqlalchemy.orm import Session

from aerobee.client_core.message import Message
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import LIST_TRANSACTIONS, PULL
from aerobee.producer_client.outbox import NUMBER, Outbox, OutboxRelay
from aerobee.runtime import errors
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from tests.producer_client.dying_relay import STEPS
from tests.support.postgres import find_postgres, running_postgres
from tests.support.real_brokers import BrokerProcess, RouteServer
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RULES = {"timeout_ms": 300, "check_interval_ms": 300, "checks_max": 1_000}
COUNT = 7


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    programs = find_postgres()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with running_postgres(programs) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sql.Engine]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/outbox.db"
    else:
        url = request.getfixturevalue("postgres")
    engine = sql.create_engine(url)
    outbox = Outbox()
    outbox.messages.metadata.drop_all(engine)
    outbox.create(engine)
    outbox.create(engine)  # again does nothing
    yield engine
    engine.dispose()


class Cluster:
    def __init__(self, broker: BrokerProcess, routes: RouteServer, channels: Channels) -> None:
        self.broker, self.routes, self.channels = broker, routes, channels

    async def bodies(self, topic: str = "orders") -> list[bytes]:
        """In the order of the queue."""
        request = broker_pb2.PullRequest(topic=topic, queue_id=0, max_messages=1_000)
        answer = await self.channels.call(self.broker.address, PULL, request)
        if answer.code != common_pb2.OK:
            return []
        return [record.body for record in iterate_records(answer.records)]

    async def open_ones(self) -> int:
        request = broker_pb2.ListTransactionsRequest()
        answer = await self.channels.call(self.broker.address, LIST_TRANSACTIONS, request)
        return len(answer.transactions)


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    topics = {"orders": 1, "bills": 1}
    broker = await BrokerProcess("a", folder / "broker", topics, {}, RULES).start()
    routes = await RouteServer([broker]).start()
    channels = Channels()
    try:
        yield Cluster(broker, routes, channels)
    finally:
        await channels.close()
        await routes.stop()
        await broker.stop()


def waiting(engine: sql.Engine) -> int:
    with engine.connect() as connection:
        return len(Outbox().next(connection, 1_000))


async def until_sent(here: Cluster, engine: sql.Engine, wanted: list[bytes]) -> None:
    async def is_sent() -> bool:
        return await here.bodies() == wanted and await asyncio.to_thread(waiting, engine) == 0

    await until(is_sent, "everything is sent")


async def test_what_a_transaction_added_is_sent_in_the_order_of_commits(
    engine: sql.Engine, tmp_path: Path
) -> None:
    outbox = Outbox()
    async with (
        cluster(tmp_path) as here,
        OutboxRelay(outbox, engine, here.routes.address, poll=60) as relay,
    ):
        with Session(engine) as session:
            outbox.add(session, Message("orders", b"lost"))
            session.rollback()
        for number in range(3):
            with Session(engine) as session:
                outbox.add(session, Message("orders", b"%d" % number), Message("bills", b"b"))
                outbox.add(session, Message("orders", b"%d+" % number))
                session.commit()
        relay.wake()
        await until_sent(here, engine, [b"0", b"0+", b"1", b"1+", b"2", b"2+"])
        assert await here.bodies("bills") == [b"b"] * 3
        assert (relay.sent, relay.trouble) == (9, "")


async def test_a_message_arrives_as_it_was_added(engine: sql.Engine, tmp_path: Path) -> None:
    outbox = Outbox()
    added = Message(
        "orders", b"\x00\xff", tag="t", keys=["a", "b"], properties={"x": "ä"}, sharding_key="s"
    )
    with engine.begin() as connection:
        outbox.add(connection, added)
        (row,) = outbox.next(connection, 10)
        sent = row.message
        assert (sent.topic, sent.body, sent.tag, sent.keys) == (
            "orders",
            b"\x00\xff",
            "t",
            ("a", "b"),
        )
        assert (sent.sharding_key, dict(sent.properties)) == ("s", {"x": "ä", NUMBER: "1"})
        with pytest.raises(errors.InvalidArgument, match="as soon as possible"):
            outbox.add(connection, Message("orders", b"x", delay=5))


async def test_a_transaction_that_adds_waits_for_the_one_before(engine: sql.Engine) -> None:
    """So numbers are in the order of commits, and a rollback leaves no gap."""
    outbox = Outbox()

    def add(body: bytes) -> None:
        with engine.begin() as connection:
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA busy_timeout = 30000")
            outbox.add(connection, Message("orders", body))

    with Session(engine) as first:
        outbox.add(first, Message("orders", b"first"))
        others = [asyncio.ensure_future(asyncio.to_thread(add, b"%d" % n)) for n in range(3)]
        done, _ = await asyncio.wait(others, timeout=0.3)
        assert not done
        first.rollback()
    await asyncio.gather(*others)
    with engine.connect() as connection:
        rows = outbox.next(connection, 10)
    assert [row.number for row in rows] == [1, 2, 3]
    assert {row.message.body for row in rows} == {b"0", b"1", b"2"}


@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
async def test_a_relay_that_is_killed_loses_and_doubles_nothing(
    engine: sql.Engine, tmp_path: Path, step: int
) -> None:
    outbox, wanted = Outbox(), [b"%d" % number for number in range(COUNT)]
    with engine.begin() as connection:
        outbox.add(connection, *(Message("orders", body) for body in wanted))
    async with cluster(tmp_path) as here:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.producer_client.dying_relay"),
            *(here.routes.address, engine.url.render_as_string(hide_password=False), str(step)),
            cwd=Path(__file__).parents[2],
        )
        assert await program.wait() == -9
        async with OutboxRelay(outbox, engine, here.routes.address, topics=["orders"], poll=0.1):
            await until_sent(here, engine, wanted)

            async def none_is_open() -> bool:
                return await here.open_ones() == 0

            await until(none_is_open, "what the dead relay began is rolled back")
            await asyncio.to_thread(_add_more, engine, outbox)
            await until_sent(here, engine, [*wanted, b"more"])


def _add_more(engine: sql.Engine, outbox: Outbox) -> None:
    with engine.begin() as connection:
        outbox.add(connection, Message("orders", b"more"))


async def test_two_relays_at_a_time_send_each_message_once_and_in_order(
    engine: sql.Engine, tmp_path: Path
) -> None:
    outbox = Outbox()
    wanted = [b"%d" % number for number in range(300)]
    async with cluster(tmp_path) as here:
        address = here.routes.address
        async with (
            OutboxRelay(outbox, engine, address, poll=0.01),
            OutboxRelay(outbox, engine, address, poll=0.01),
        ):
            for first in range(0, 300, 30):
                with engine.begin() as connection:
                    outbox.add(
                        connection,
                        *(Message("orders", body) for body in wanted[first : first + 30]),
                    )
                await asyncio.sleep(0.02)
            await until_sent(here, engine, wanted)


async def test_a_relay_waits_for_the_cluster_and_says_why(
    engine: sql.Engine, tmp_path: Path
) -> None:
    outbox = Outbox()
    with engine.begin() as connection:
        outbox.add(connection, Message("nowhere", b"x"))
    async with (
        cluster(tmp_path) as here,
        OutboxRelay(outbox, engine, here.routes.address) as relay,
    ):
        await until(lambda: "nowhere" in relay.trouble, "it says what is wrong")
    assert waiting(engine) == 1
