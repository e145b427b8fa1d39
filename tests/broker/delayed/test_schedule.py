"""Messages that wait are listed, recalled, delivered now, and put off."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.delayed import finder
from aerobee.broker.delayed.feature import Delays
from aerobee.runtime.errors import InvalidArgument, MessageNotFound
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.delayed_records import recall_record
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.recall_handle import RecallHandle
from tests.support.delayed import (
    BORN_HOST,
    SetClock,
    delivered,
    send_later,
    settled,
    until_delivered,
)

HOUR_MS = 3_600_000


def handle_of(body: bytes, deliver_ms: int) -> str:
    return RecallHandle("t", "broker-a", deliver_ms, f"KEY{body.decode()}").encode()


async def test_a_message_that_was_recalled_is_never_delivered(start_broker: Any) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock)
    schedule = broker.feature(Delays).schedule
    due_ms = clock.now_ms() + HOUR_MS
    send_later(broker, "t", [b"one", b"two"], deliver_ms=due_ms)
    await schedule.recall(handle_of(b"one", due_ms))
    with pytest.raises(MessageNotFound, match="delivered or recalled"):
        await schedule.recall(handle_of(b"one", due_ms))
    await broker.stop()
    again = await start_broker(clock=clock)
    clock.ahead_ms += 2 * HOUR_MS
    assert [each.body for each in await until_delivered(again, "t", 1)] == [b"two"]
    await settled(again)
    assert len(delivered(again, "t")) == 1
    with pytest.raises(MessageNotFound, match="delivered or recalled"):
        await again.feature(Delays).schedule.recall(handle_of(b"two", due_ms))


async def test_a_message_is_delivered_now(start_broker: Any) -> None:
    broker = await start_broker()
    due_ms = broker.clock.now_ms() + HOUR_MS
    send_later(broker, "t", [b"one", b"two"], deliver_ms=due_ms)
    await broker.feature(Delays).schedule.deliver_now(handle_of(b"two", due_ms))
    assert [each.body for each in delivered(broker, "t")] == [b"two"]


async def test_a_message_comes_at_its_new_time_and_not_at_its_old_one(start_broker: Any) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock)
    schedule = broker.feature(Delays).schedule
    due_ms = clock.now_ms() + HOUR_MS
    send_later(broker, "t", [b"off", b"on"], deliver_ms=due_ms)
    new_handle = await schedule.retime(handle_of(b"off", due_ms), due_ms + HOUR_MS)
    await schedule.retime(handle_of(b"on", due_ms), due_ms - HOUR_MS // 2)
    clock.set_to(due_ms - 10_000)
    assert [each.body for each in await until_delivered(broker, "t", 1)] == [b"on"]
    clock.set_to(due_ms + 10_000)
    await settled(broker)
    assert len(delivered(broker, "t")) == 1
    assert [each.handle for each in (await schedule.search("t")).messages] == [new_handle]
    clock.set_to(due_ms + HOUR_MS + 1)
    messages = await until_delivered(broker, "t", 2)
    assert [each.body for each in messages] == [b"on", b"off"]
    assert messages[1].properties["UNIQ_KEY"] == "KEYoff"


async def test_a_list_has_what_waits_by_topic_time_and_key_page_by_page(start_broker: Any) -> None:
    topics = {name: TopicConfig(name=name, read_queue_count=2) for name in ("t", "u")}
    broker = await start_broker(topics=topics)
    schedule = broker.feature(Delays).schedule
    now_ms = broker.clock.now_ms()
    for number in range(7):
        at_ms = now_ms + HOUR_MS + 1_000 * number
        send_later(broker, "t" if number % 2 else "u", [b"%d" % number], deliver_ms=at_ms)
    send_later(broker, "t", [b"level"], queue_id=1, level=18)
    await settled(broker)

    everything = await schedule.search()
    assert [each.unique_key for each in everything.messages] == [
        *(f"KEY{number}" for number in range(7)),
        "KEYlevel",
    ]
    assert everything.after == ""
    level = everything.messages[-1]
    assert (level.level, level.topic, level.queue_id, level.handle) == (18, "t", 1, "")
    assert 0 <= level.deliver_ms - now_ms - 2 * HOUR_MS < 60_000

    of_topic, after = [], ""
    while True:
        page = await schedule.search("t", limit=2, after=after)
        of_topic += [each.unique_key for each in page.messages]
        if not (after := page.after):
            break
    assert of_topic == ["KEY1", "KEY3", "KEY5", "KEYlevel"]

    begin_ms = now_ms + HOUR_MS + 2_000
    between = await schedule.search(begin_ms=begin_ms, end_ms=begin_ms + 2_000)
    assert [each.unique_key for each in between.messages] == ["KEY2", "KEY3"]
    by_key = await schedule.search(key="KEY4")
    assert [each.topic for each in by_key.messages] == ["u"]
    await schedule.recall(by_key.messages[0].handle)
    assert (await schedule.search(key="KEY4")).messages == ()


@pytest.mark.parametrize("handle", ["", "no handle", RecallHandle("t", "b", 1, "k").encode()])
async def test_what_is_no_handle_of_this_broker_is_refused(broker: Any, handle: str) -> None:
    await settled(broker)
    with pytest.raises(InvalidArgument):
        await broker.feature(Delays).schedule.recall(handle)
    with pytest.raises(InvalidArgument):
        await broker.feature(Delays).schedule.search(after=handle or "x")


async def test_a_request_of_apaches_broker_counts_however_much_is_done_out_of_turn(
    start_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.timers.term.LOOSE_MAX", 0)
    clock = SetClock()
    broker = await start_broker(clock=clock)
    due_ms = clock.now_ms() + HOUR_MS
    send_later(broker, "t", [b"dropped", b"kept"], deliver_ms=due_ms)
    request = recall_record(
        topic="t",
        unique_key="KEYdropped",
        deliver_ms=due_ms,
        now_ms=clock.now_ms(),
        host=BORN_HOST,
    )
    with broker.writes.publishing:
        broker.writes.append_copies(
            request.topic, request.queue_id, [request.record], [ProducerRun(0, 0, 1)]
        )
    clock.set_to(due_ms + HOUR_MS)
    await until_delivered(broker, "t", 1)
    await settled(broker)
    assert [each.body for each in delivered(broker, "t")] == [b"kept"]


async def test_a_list_of_levels_has_all_of_them_page_by_page(
    start_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finder, "LEVEL_ENTRIES_AT_ONCE", 10)
    broker = await start_broker()
    for number in range(50):
        send_later(broker, "t", [b"%d" % number], level=17 + number % 2)
    send_later(broker, "t", [b"50"], deliver_ms=broker.clock.now_ms() + HOUR_MS * 3 // 2)
    await settled(broker)
    schedule = broker.feature(Delays).schedule
    found, after = [], ""
    while True:
        page = await schedule.search("t", limit=3, after=after)
        found += [(each.deliver_ms, each.unique_key) for each in page.messages]
        if not (after := page.after):
            break
    assert found == sorted(found, key=lambda each: each[0])
    assert sorted(key for _, key in found) == sorted(f"KEY{number}" for number in range(51))
