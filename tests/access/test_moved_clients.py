"""Clients that run for long: without credentials, with wrong ones, and whose rights come and go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from aerobee.access.credentials import FILE_VARIABLE, Anonymous, credentials_of_environment
from aerobee.client_core import Message
from aerobee.consumer_client import PullConsumer, PushConsumer, ReceivedMessage, StartFrom
from aerobee.producer_client import Producer
from aerobee.runtime.errors import AccessDenied, AerobeeError, Unauthenticated
from tests.support.local_up import Up, running
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--access") as up:
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access" / "cluster-secret")
        up.run("topic", "create", "orders")
        yield up


def created(up: Up, name: str, folder: Path) -> Path:
    file = folder / name
    up.run("user", "create", name, "--credentials-file", str(file))
    return file


async def outcome_of(producer: Producer, body: bytes) -> str:
    try:
        await producer.send(Message("orders", body))
    except AerobeeError as error:
        return type(error).__name__
    return "sent"


def becomes(producer: Producer, wanted: str) -> Callable[[], object]:
    async def outcome() -> bool:
        return await outcome_of(producer, b"again") == wanted

    return outcome


async def in_thread(up: Up, *arguments: str) -> None:
    await asyncio.to_thread(up.run, *arguments)


async def test_a_producer_whose_right_is_taken_and_given_back_goes_on(
    up: Up, tmp_path: Path
) -> None:
    """It is told at once what it lacks; the same producer sends again as soon as it may."""
    file = created(up, "coming", tmp_path)
    up.run("acl", "add", "coming", "Topic:orders", "Pub")
    credentials = credentials_of_environment({FILE_VARIABLE: str(file)})
    async with Producer(up.document()["nameserver"], credentials=credentials) as producer:
        for round_number in range(2):
            assert await outcome_of(producer, b"%d" % round_number) == "sent"
            failures: list[AerobeeError] = []

            async def keep_sending(failures: list[AerobeeError] = failures) -> None:
                while not failures:
                    try:
                        await producer.send(Message("orders", b"under way"))
                    except AerobeeError as error:
                        failures.append(error)

            sending = [asyncio.create_task(keep_sending()) for _ in range(8)]
            await in_thread(up, "acl", "remove", "coming", "Topic:orders")
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*sending)
            for failure in failures:
                assert "user coming may not: this needs Pub on Topic:orders" in str(failure)
                # What was under way may be stored; it does not wait for its deadline.
                is_told = "the last one was refused" in str(failure)
                assert isinstance(failure, AccessDenied) or is_told, failure
            assert await outcome_of(producer, b"without") == "AccessDenied"
            await in_thread(up, "acl", "add", "coming", "Topic:orders", "Pub")
            await until(becomes(producer, "sent"), "the right to count again")


async def test_a_right_that_is_missing_harms_no_other_topic(up: Up, tmp_path: Path) -> None:
    """One stream carries all topics of a producer, and a refusal ends it."""
    file = created(up, "half", tmp_path)
    up.run("topic", "create", "open")
    up.run("acl", "add", "half", "Topic:orders", "Sub")
    up.run("acl", "add", "half", "Topic:open", "Pub")
    credentials = credentials_of_environment({FILE_VARIABLE: str(file)})
    began_s = time.monotonic()
    async with Producer(up.document()["nameserver"], credentials=credentials) as producer:
        for round_number in range(3):
            allowed = [producer.send(Message("open", b"%d" % n)) for n in range(20)]
            refused = [producer.send(Message("orders", b"%d" % n)) for n in range(20)]
            outcomes = await asyncio.gather(*allowed, *refused, return_exceptions=True)
            assert not [one for one in outcomes[:20] if isinstance(one, BaseException)]
            for outcome in outcomes[20:]:
                assert "half may not: this needs Pub on Topic:orders" in str(outcome)
                assert round_number or isinstance(outcome, AccessDenied), outcome
    assert time.monotonic() - began_s < 10, "no send waited for its deadline"


async def test_a_client_without_credentials_is_told_and_one_with_wrong_ones_recovers(
    up: Up, tmp_path: Path
) -> None:
    nameserver = up.document()["nameserver"]
    with pytest.raises(Unauthenticated, match="does not say who makes it"):
        async with Producer(nameserver, credentials=Anonymous()) as producer:
            await producer.send(Message("orders", b"x"))
    stranger = PullConsumer("late-readers", nameservers=nameserver, credentials=Anonymous())
    stranger.subscribe("orders")
    with pytest.raises(Unauthenticated, match="does not say who makes it"):
        async with stranger, asyncio.timeout(PATIENCE_S):
            await stranger.poll()
    right = created(up, "late", tmp_path)
    up.run("acl", "add", "late", "Topic:orders", "Pub,Sub")
    used = tmp_path / "used"
    used.write_text("access_key = late\nsecret_key = not-the-secret-yet\n")
    credentials = credentials_of_environment({FILE_VARIABLE: str(used)})
    async with Producer(nameserver, credentials=credentials) as producer:
        assert await outcome_of(producer, b"too early") == "Unauthenticated"
        right.replace(used)
        await until(becomes(producer, "sent"), "the right file to be read")


@pytest.mark.thorough
async def test_a_consumer_whose_right_is_taken_ends_and_the_next_goes_on_where_it_was(
    up: Up, tmp_path: Path
) -> None:
    file = created(up, "reading", tmp_path)
    up.run("acl", "add", "reading", "Topic:orders", "Sub")
    up.run("acl", "add", "reading", "Group:readers", "Sub")
    credentials = credentials_of_environment({FILE_VARIABLE: str(file)})
    seen: list[bytes] = []

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        seen.extend(message.body for message in messages)

    def consumer() -> PushConsumer:
        made = PushConsumer(
            "readers",
            handle,
            run_in_thread=False,
            nameservers=up.document()["nameserver"],
            start_from=StartFrom.FIRST,
            credentials=credentials,
        )
        made.subscribe("orders")
        return made

    async def sent(body: str) -> None:
        await asyncio.to_thread(up.run, "produce", "orders", given=f"{body}\n")

    await sent("before")
    async with consumer():
        await until(lambda: b"before" in seen, "the first message")
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.create_task(consumer().run())
        await asyncio.sleep(1.0)  # nothing tells that it reads
        assert not running.done()
        await in_thread(up, "acl", "remove", "reading", "Topic:orders")
        await sent("meanwhile")
        with pytest.raises(AccessDenied, match="user reading may not: this needs Sub on Topic:"):
            await running
    assert b"meanwhile" not in seen
    await in_thread(up, "acl", "add", "reading", "Topic:orders", "Sub")
    async with consumer():
        await until(lambda: b"meanwhile" in seen, "the right to count again")
    assert (seen.count(b"before"), seen.count(b"meanwhile")) == (1, 1)
