"""Producers with streams are asked in turn, each a bounded number of questions."""

from __future__ import annotations

import pytest

from aerobee.broker.transactions import asked
from aerobee.broker.transactions.asked import QUESTIONS_MAX, AskedProducers
from aerobee.broker.transactions.questions import Question
from aerobee.runtime.errors import ShuttingDown
from aerobee.store.format.record import HostAddress, encode_record
from aerobee.store.format.record_view import Record
from aerobee.store.format.transaction_records import HalfMessage


def question(number: int, topic: str = "orders", size: int = 10) -> Question:
    data = encode_record(
        topic=topic.encode(),
        body=bytes(size),
        properties=b"",
        born_timestamp_ms=1,
        born_host=HostAddress(bytes(4), 1),
        store_host_ipv6=False,
    )
    half = HalfMessage(number, 0, len(data), f"T-{number}", topic, topic, 0, 1, 1)
    return Question(half, Record(data), 1)


async def test_each_in_turn_is_asked_about_its_topics() -> None:
    producers = AskedProducers()
    assert not producers.ask(question(0))
    with producers.joined(["orders"]) as one, producers.joined(["orders", "bills"]) as two:
        assert [producers.ask(question(number)) for number in range(4)] == [True] * 4
        assert producers.ask(question(4, "bills"))
        assert not producers.ask(question(5, "others"))
        assert [(await one.next()).half.offset for _ in range(2)] == [0, 2]
        assert [(await two.next()).half.offset for _ in range(3)] == [1, 3, 4]
    assert not producers.ask(question(6))


async def test_one_that_is_slow_has_a_bounded_number_and_others_take_over() -> None:
    producers = AskedProducers()
    with producers.joined(["orders"]) as slow:
        assert [producers.ask(question(n)) for n in range(QUESTIONS_MAX + 1)].count(True) == (
            QUESTIONS_MAX
        )
        with producers.joined(["orders"]) as other:
            assert producers.ask(question(99))
            assert (await other.next()).half.offset == 99
        assert (await slow.next()).half.offset == 0
        assert producers.ask(question(100))


async def test_bytes_are_bounded_and_one_large_question_goes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asked, "QUESTIONS_BYTES_MAX", 1_000)
    producers = AskedProducers()
    with producers.joined(["orders"]) as producer:
        assert producers.ask(question(1, size=5_000))
        assert not producers.ask(question(2))
        await producer.next()
        assert producers.ask(question(3))


async def test_streams_end_when_the_broker_stops() -> None:
    producers = AskedProducers()
    with producers.joined(["orders"]) as producer:
        producers.close()
        with pytest.raises(ShuttingDown):
            await producer.next()
    with pytest.raises(ShuttingDown), producers.joined(["orders"]):
        pass
