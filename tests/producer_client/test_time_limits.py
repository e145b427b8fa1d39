"""A send ends within its time, whatever it waits for; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Final

import pytest

from aerobee.client_core.message import Message
from aerobee.producer_client import Producer, ProducerConfig
from aerobee.producer_client.receipt import PartlySent
from aerobee.runtime import errors
from aerobee.testing import VirtualCluster, faults

TIMEOUT_S: Final = 1.0
TURN_S: Final = 0.02
"""The clock moves only while everything waits: this is far more than a turn of the loop."""
SMALL: Final = ProducerConfig(buffered_bytes_max=2_000, linger_ms=0)

Sends = Callable[[Producer], Awaitable[object]]


async def one(producer: Producer) -> object:
    return await producer.send(Message("orders", b"x" * 500), timeout=TIMEOUT_S)


async def keyed(producer: Producer) -> object:
    return await producer.send(Message("orders", b"x", sharding_key="7"), timeout=TIMEOUT_S)


async def many(producer: Producer) -> object:
    messages = [Message("orders", b"x" * 500) for _ in range(20)]
    return await producer.send_batch(messages, timeout=TIMEOUT_S)


async def begun(producer: Producer) -> object:
    return await producer.begin(Message("orders", b"x" * 500), timeout=TIMEOUT_S)


@contextmanager
def no_nameserver(cluster: VirtualCluster) -> Iterator[None]:
    with faults.cut_network(cluster, faults.NAMESERVER):
        yield


@contextmanager
def no_broker(cluster: VirtualCluster) -> Iterator[None]:
    with faults.cut_network(cluster, "broker-a"):
        yield


@contextmanager
def nothing_at_all(cluster: VirtualCluster) -> Iterator[None]:
    with ExitStack() as cuts:
        cuts.enter_context(no_nameserver(cluster))
        cuts.enter_context(no_broker(cluster))
        yield


async def ended(sending: Awaitable[object]) -> tuple[float, BaseException | None]:
    """How long it took, and how it failed."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        await sending
    except errors.AerobeeError as error:
        return loop.time() - began_s, error
    return loop.time() - began_s, None


@pytest.mark.parametrize("sends", [one, keyed, many, begun])
@pytest.mark.parametrize("away", [no_nameserver, no_broker, nothing_at_all])
@pytest.mark.parametrize("is_known", [True, False], ids=["known topic", "new topic"])
async def test_a_send_ends_within_its_time_whoever_does_not_answer(
    sends: Sends,
    away: Callable[[VirtualCluster], AbstractContextManager[None]],
    is_known: bool,
) -> None:
    async with (
        VirtualCluster() as cluster,
        Producer(cluster.nameservers, config=SMALL) as producer,
    ):
        await cluster.create_topic("orders", queues=1)
        if is_known:
            await producer.send(Message("orders", b"first"))
        with away(cluster):
            tasks = [asyncio.ensure_future(ended(sends(producer))) for _ in range(10)]
            await asyncio.sleep(0.6)
            tasks += [asyncio.ensure_future(ended(sends(producer))) for _ in range(10)]
            outcomes = await asyncio.gather(*tasks)
        took = max(took_s for took_s, _ in outcomes)
        assert took <= TIMEOUT_S + TURN_S
        failed = [error for _, error in outcomes if error is not None]
        if away is not no_nameserver or not is_known:
            assert len(failed) == 20
        per_call = 20 if sends is many else 1
        unsaid = sum(1 for error in failed if isinstance(error, PartlySent))
        assert producer.statistics().messages_failed <= per_call * len(failed)
        assert unsaid or producer.statistics().messages_failed == per_call * len(failed)


async def test_a_cluster_that_is_down_is_not_taken_for_a_master_that_is_away() -> None:
    async with VirtualCluster() as cluster, Producer(cluster.nameservers) as producer:
        await producer.send(Message("orders", b"first"))
        faults.kill(cluster)
        for cut, is_named in ((None, False), (nothing_at_all, True)):
            with cut(cluster) if cut else nullcontext():
                await asyncio.sleep(5)
                _, error = await ended(producer.send(Message("orders", b"x"), timeout=10.0))
                assert isinstance(error, errors.Unreachable | errors.NoBrokerAvailable)
                assert ("no nameserver answers either" in str(error)) is is_named
                assert str(error).count("no nameserver") == is_named


async def test_a_full_buffer_and_a_frozen_broker_together_take_one_time_limit() -> None:
    async with (
        VirtualCluster() as cluster,
        Producer(cluster.nameservers, config=SMALL) as producer,
    ):
        await producer.send(Message("orders", b"first"))
        with faults.cut_network(cluster, "broker-a"):
            # Each time one fails, another gets its room, and has only what is left of its time.
            sending: list[asyncio.Future[tuple[float, BaseException | None]]] = []
            for _ in range(40):
                sending += [asyncio.ensure_future(ended(one(producer))) for _ in range(10)]
                await asyncio.sleep(0.05)
            outcomes = await asyncio.gather(*sending)
        assert max(took_s for took_s, _ in outcomes) <= TIMEOUT_S + TURN_S
        assert any(isinstance(error, errors.Busy) for _, error in outcomes)
        assert producer.statistics().messages_failed == len(outcomes)
        assert producer.statistics().buffered_bytes == 0


async def test_a_send_does_not_wait_beyond_its_time_for_an_earlier_one_with_more() -> None:
    async with VirtualCluster() as cluster, Producer(cluster.nameservers) as producer:
        await cluster.create_topic("orders")
        with faults.cut_network(cluster, faults.NAMESERVER):
            patient = asyncio.ensure_future(producer.send(Message("orders", b"1"), timeout=60.0))
            await asyncio.sleep(0)
            took_s, error = await ended(one(producer))
            assert took_s <= TIMEOUT_S + TURN_S
            assert isinstance(error, errors.AerobeeError)
        await patient


async def test_a_batch_that_lingers_leaves_or_fails_within_its_time() -> None:
    config = ProducerConfig(linger_ms=5_000)
    async with (
        VirtualCluster() as cluster,
        Producer(cluster.nameservers, config=config) as producer,
    ):
        await cluster.create_topic("orders")
        took_s, _ = await ended(one(producer))
        assert took_s <= TIMEOUT_S + TURN_S


async def test_the_end_of_a_transaction_is_answered_within_its_time() -> None:
    async with VirtualCluster() as cluster, Producer(cluster.nameservers) as producer:
        transaction = await producer.begin(Message("orders", b"1"))
        for cut in (no_broker, nothing_at_all):
            with cut(cluster):
                took_s, error = await ended(transaction.commit(timeout=TIMEOUT_S))
                assert took_s <= TIMEOUT_S + TURN_S
                assert isinstance(error, errors.DeadlineExceeded)
        await transaction.commit()


async def test_flush_returns_when_the_last_send_has_used_up_its_time() -> None:
    async with (
        VirtualCluster() as cluster,
        Producer(cluster.nameservers, config=SMALL) as producer,
    ):
        await producer.send(Message("orders", b"first"))
        with faults.cut_network(cluster, "broker-a"):
            sending = [asyncio.ensure_future(ended(one(producer))) for _ in range(20)]
            await asyncio.sleep(0)
            took_s, _ = await ended(producer.flush())
            assert took_s <= TIMEOUT_S + TURN_S
        await asyncio.gather(*sending)


async def test_failed_sends_are_counted_whatever_they_failed_of() -> None:
    async with (
        VirtualCluster() as cluster,
        Producer(cluster.nameservers, config=SMALL) as producer,
    ):
        with faults.cut_network(cluster, faults.NAMESERVER):
            await ended(one(producer))
            assert producer.statistics().messages_failed == 1
            await ended(many(producer))
            assert producer.statistics().messages_failed == 21
        await ended(producer.send(Message("orders", b"x" * 5_000_000)))
        assert producer.statistics().messages_failed == 22
