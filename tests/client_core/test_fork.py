"""A child of `fork` has a copy of an open client, and no thread that would serve it."""

from __future__ import annotations

import asyncio
import multiprocessing.connection
import os
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from aerobee.client_core import ClusterConnection, Message, UsedAfterFork
from aerobee.consumer_client import PullConsumer, StartFrom
from aerobee.producer_client import BlockingProducer, Producer
from tests.support.real_brokers import RealCluster, start_cluster

# The child of a process with threads: what this is about.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    cluster = await start_cluster(tmp_path, {"broker-a": {"orders": 4}})
    yield cluster
    await cluster.stop()


def in_child(work: Callable[[], str]) -> str:
    """What `work` returns in a forked child, which must not take long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = work()
        except BaseException:
            said = traceback.format_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    try:
        waiting = multiprocessing.connection.wait([reading], timeout=10)
        return os.read(reading, 65_536).decode() if waiting else "it hangs"
    finally:
        os.close(reading)
        os.kill(child, 9)
        os.waitpid(child, 0)


def refusal(call: Callable[[], object]) -> Callable[[], str]:
    def work() -> str:
        try:
            call()
        except UsedAfterFork as error:
            return f"refused: {error}"
        return "taken"

    return work


async def test_a_blocking_producer_is_refused_at_once_and_can_be_closed(
    cluster: RealCluster,
) -> None:
    def script() -> None:
        with BlockingProducer(cluster.address) as producer:
            producer.send(Message("orders", b"before"))

            def use() -> None:
                with producer_that_closes(producer):
                    producer.send(Message("orders", b"x"), timeout=2)

            said = in_child(refusal(use))
            assert said.startswith("refused: this producer was opened in process")
            assert "open one in each process, after the fork" in said
            producer.send(Message("orders", b"after"))

    await asyncio.to_thread(script)


class producer_that_closes:
    """`with` as the child leaves it, too."""

    def __init__(self, producer: BlockingProducer) -> None:
        self._producer = producer

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._producer.close()


async def test_producers_consumers_and_connections_are_refused_in_the_childs_own_loop(
    cluster: RealCluster,
) -> None:
    async with (
        Producer(cluster.address) as producer,
        PullConsumer("g", nameservers=cluster.address, start_from=StartFrom.FIRST).subscribe(
            "orders"
        ) as consumer,
        ClusterConnection(cluster.address) as connection,
    ):
        await producer.send(Message("orders", b"before"))
        await connection.routes.route("orders")
        calls: dict[str, Callable[[], object]] = {
            "producer": lambda: producer.send(Message("orders", b"x")),
            "batch": lambda: producer.send_batch([Message("orders", b"x")]),
            "poll": lambda: consumer.poll(),
            "commit": lambda: consumer.commit(),
            "connection": lambda: connection.routes.refresh("orders"),
        }
        for name, call in calls.items():

            def use(call: Callable[[], object] = call) -> None:
                asyncio._set_running_loop(None)
                asyncio.run(call())  # type: ignore[arg-type]

            assert in_child(refusal(use)).startswith("refused: "), name
        await producer.send(Message("orders", b"after"))


async def test_a_client_that_is_made_before_a_fork_and_opened_after_it_draws_ids_of_its_own(
    cluster: RealCluster,
) -> None:
    """Of two producers with one number the second one's messages would count as stored already."""
    connection = ClusterConnection(cluster.address)

    async def draw() -> str:
        async with connection:
            return str(connection.random.getrandbits(64))

    def work() -> str:
        asyncio._set_running_loop(None)
        return asyncio.run(draw())

    drawn = {in_child(work) for _ in range(3)}
    assert len(drawn) == 3
    assert all(each.isdigit() for each in drawn), drawn


async def test_a_producer_of_another_loop_is_refused_too(cluster: RealCluster) -> None:
    async with Producer(cluster.address) as producer:

        def elsewhere() -> None:
            with pytest.raises(Exception, match="opened on another event loop"):
                asyncio.run(producer.send(Message("orders", b"x")))

        await asyncio.to_thread(elsewhere)
