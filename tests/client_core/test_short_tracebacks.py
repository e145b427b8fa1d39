"""What a client raises shows its caller's code, and no page of this library's."""

from __future__ import annotations

import traceback

import pytest

from aerobee import (
    AdminClient,
    BlockingAdminClient,
    BlockingProducer,
    BlockingPullConsumer,
    ConsumerConfig,
    Message,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    errors,
)
from aerobee.cluster_view.routes import Routes
from tests.support.ports import free_port


def functions_of(error: BaseException) -> list[str]:
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_a_call_that_fails_shows_the_callers_line_and_the_method() -> None:
    with BlockingProducer(f"127.0.0.1:{free_port()}") as producer:
        for _ in range(2):  # The same error may be raised again: it does not grow.
            with pytest.raises(errors.Unreachable) as caught:
                producer.send(Message("orders", b"{}"), timeout=0.2)
            assert functions_of(caught.value)[1:] == ["send", "call"]


def test_a_start_that_fails_does_so_too() -> None:
    consumer = BlockingPullConsumer(
        "g", nameservers=f"127.0.0.1:{free_port()}", config=ConsumerConfig(await_cluster_ms=100)
    ).subscribe("orders")
    with pytest.raises(errors.Unreachable) as caught:
        consumer.start()
    assert functions_of(caught.value)[1:] == ["start", "open"]


def test_a_question_to_no_cluster_does_so_too() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with (
        BlockingAdminClient(nowhere, await_cluster_ms=0) as admin,
        pytest.raises(
            errors.Unreachable, match=r"^no nameserver answers: .*is one running there"
        ) as (caught),
    ):
        admin.call(lambda admin: admin.topics.list())
    assert functions_of(caught.value)[1:] == ["call", "call"]


def test_a_coroutine_of_the_callers_keeps_its_frames() -> None:
    async def mine(admin: AdminClient) -> None:
        raise errors.InvalidArgument("of the caller")

    with (
        BlockingAdminClient(f"127.0.0.1:{free_port()}") as admin,
        pytest.raises(errors.InvalidArgument) as caught,
    ):
        admin.call(mine)
    assert functions_of(caught.value)[-1] == "mine"


async def test_asynchronous_clients_without_a_cluster_show_hardly_more() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    config = ConsumerConfig(await_cluster_ms=100)
    with pytest.raises(errors.Unreachable) as caught:
        async with PullConsumer("g", nameservers=nowhere, config=config).subscribe("orders"):
            pass
    assert functions_of(caught.value)[1:] == ["__aenter__", "start"]

    consumer = PushConsumer("g", lambda messages: None, nameservers=nowhere, config=config)
    consumer.subscribe("orders")
    with pytest.raises(errors.Unreachable) as caught:
        await consumer.run()
    assert functions_of(caught.value)[1:] == ["run"]

    async with Producer(nowhere, config=ProducerConfig(await_cluster_ms=100)) as producer:
        with pytest.raises(errors.Unreachable) as caught:
            await producer.send(Message("orders", b"{}"))
    assert functions_of(caught.value)[1:] == ["send", "find"]


async def test_a_bug_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(routes: Routes, topic: str, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Routes, "route", broken)
    async with Producer(f"127.0.0.1:{free_port()}") as producer:
        with pytest.raises(ZeroDivisionError) as caught:
            await producer.send(Message("orders", b"{}"))
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[1:] == ["send", "find", "_ask", "broken"]
