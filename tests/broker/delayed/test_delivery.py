"""Messages that wait are delivered at their time, once, by a whole broker over a real store."""

from __future__ import annotations

import asyncio
from typing import Any

from aerobee.broker.delayed.feature import Delays
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.tables.config_tables import TopicConfig
from tests.support.delayed import SetClock, delivered, send_later, settled, until_delivered
from tests.support.waiting import until

HOUR_MS = 3_600_000


async def test_a_message_comes_at_its_time_and_is_what_was_sent(start_broker: Any) -> None:
    broker = await start_broker()
    deliver_ms = broker.clock.now_ms() + 300
    send_later(broker, "t", [b"one"], queue_id=2, deliver_ms=deliver_ms)
    (message,) = await until_delivered(broker, "t", 1, queue_id=2)
    assert message.body == b"one"
    assert 0 <= message.stored_ms - deliver_ms < 1_000
    assert message.properties["UNIQ_KEY"] == "KEYone"
    assert message.born_ms < deliver_ms - 100


async def test_levels_and_times_come_in_the_order_of_their_times(start_broker: Any) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock)
    now_ms = clock.now_ms()
    send_later(broker, "t", [b"third"], deliver_ms=now_ms + 70_000)
    send_later(broker, "t", [b"first"], level=1)
    send_later(broker, "t", [b"second"], level=3)
    send_later(broker, "t", [b"last"], deliver_ms=now_ms + HOUR_MS)
    await until_delivered(broker, "t", 1)
    clock.ahead_ms += 71_000
    messages = await until_delivered(broker, "t", 3)
    assert [message.body for message in messages] == [b"first", b"second", b"third"]


async def test_a_clock_that_jumps_back_delivers_nothing_twice(start_broker: Any) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock)
    now_ms = clock.now_ms()
    send_later(broker, "t", [b"%d" % number for number in range(20)], deliver_ms=now_ms + 60_000)
    clock.ahead_ms += 61_000
    await until_delivered(broker, "t", 20)
    clock.ahead_ms -= 2 * HOUR_MS
    send_later(broker, "t", [b"later"], deliver_ms=now_ms + 90_000)
    clock.ahead_ms += 3 * HOUR_MS
    messages = await until_delivered(broker, "t", 21)
    await settled(broker)
    assert sorted(message.body for message in messages) == sorted(
        [*(b"%d" % number for number in range(20)), b"later"]
    )
    assert len(delivered(broker, "t")) == 21


async def test_a_clock_that_is_set_back_delivers_nothing_of_a_level_early(
    start_broker: Any,
) -> None:
    """Nor does it hold up anything for as long as the clock was ahead."""
    clock = SetClock()
    broker = await start_broker(clock=clock)
    clock.ahead_ms += HOUR_MS
    send_later(broker, "t", [b"while it was ahead"], level=5)
    await until(lambda: broker.feature(Delays).feeder.levels[5].queue_end == 1)
    clock.ahead_ms -= HOUR_MS
    send_later(broker, "t", [b"after it"], level=5)
    await until(lambda: broker.feature(Delays).feeder.levels[5].queue_end == 2)
    await settled(broker)
    clock.ahead_ms += 50_000
    await settled(broker)
    assert delivered(broker, "t") == []
    clock.ahead_ms += 11_000
    messages = await until_delivered(broker, "t", 2)
    assert {each.body for each in messages} == {b"while it was ahead", b"after it"}


async def test_a_level_that_is_shortened_keeps_the_time_of_what_waits(start_broker: Any) -> None:
    clock = SetClock()
    stores = [
        StoreConfig(segment_bytes=1 << 20, disk_free_bytes_min=0, delay_levels_ms=(delay_ms,))
        for delay_ms in (HOUR_MS, 60_000)
    ]
    broker = await start_broker(clock=clock, store=stores[0])
    send_later(broker, "t", [b"an hour"], level=1)
    due_ms = clock.now_ms() + HOUR_MS
    await broker.stop()
    again = await start_broker(clock=clock, store=stores[1])
    send_later(again, "t", [b"a minute"], level=1)
    await settled(again)
    clock.ahead_ms += 60_001
    assert [each.body for each in await until_delivered(again, "t", 1)] == [b"a minute"]
    await settled(again)
    assert len(delivered(again, "t")) == 1
    clock.set_to(due_ms)
    assert (await until_delivered(again, "t", 2))[1].body == b"an hour"


async def test_what_was_delivered_is_not_after_a_start_and_what_waits_is(
    start_broker: Any,
) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock)
    now_ms = clock.now_ms()
    send_later(broker, "t", [b"soon"], deliver_ms=now_ms + 1_000)
    send_later(broker, "t", [b"level"], level=5)
    send_later(broker, "t", [b"later"], deliver_ms=now_ms + HOUR_MS)
    clock.ahead_ms += 2_000
    await until_delivered(broker, "t", 1)
    await broker.stop()
    again = await start_broker(clock=clock)
    assert again.opened.features[Delays].state.next_offset > 0, "the file saves reading the journal"
    await settled(again)
    assert [each.body for each in delivered(again, "t")] == [b"soon"]
    clock.ahead_ms += 2 * HOUR_MS
    messages = await until_delivered(again, "t", 3)
    assert [each.body for each in messages] == [b"soon", b"level", b"later"]


async def test_a_message_whose_topic_is_gone_is_set_aside(start_broker: Any, caplog: Any) -> None:
    topics = {name: TopicConfig(name=name, read_queue_count=1) for name in ("t", "gone")}
    broker = await start_broker(topics=topics)
    now_ms = broker.clock.now_ms()
    send_later(broker, "gone", [b"lost"], deliver_ms=now_ms + 200)
    send_later(broker, "t", [b"kept"], deliver_ms=now_ms + 200)
    broker.opened.topics.remove("gone")
    await until_delivered(broker, "t", 1)
    await settled(broker)
    assert broker.feature(Delays).copies.given_up == 1
    assert "topic gone was deleted while it waited" in caplog.text
    assert broker.store.queues.bounds("gone", 0).max_offset == 0


async def test_many_are_delivered_each_once(start_broker: Any) -> None:
    broker = await start_broker()
    now_ms = broker.clock.now_ms()
    bodies = [b"%d" % number for number in range(3_000)]
    for first in range(0, len(bodies), 500):
        for queue_id in range(4):
            some = bodies[first + queue_id * 125 : first + queue_id * 125 + 125]
            send_later(broker, "t", some, queue_id=queue_id, deliver_ms=now_ms + 1_500 + first % 7)
        await asyncio.sleep(0)
    for queue_id in range(4):
        await until_delivered(broker, "t", 750, queue_id=queue_id)
    await settled(broker)
    messages = [each for queue_id in range(4) for each in delivered(broker, "t", queue_id)]
    assert sorted(each.body for each in messages) == sorted(bodies)
    assert min(each.stored_ms for each in messages) >= now_ms + 1_500
