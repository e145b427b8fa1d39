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
    wiring = broker.wiring
    deliver_ms = wiring.clock.now_ms() + 300
    send_later(wiring, "t", [b"one"], queue_id=2, deliver_ms=deliver_ms)
    (message,) = await until_delivered(wiring, "t", 1, queue_id=2)
    assert message.body == b"one"
    assert 0 <= message.stored_ms - deliver_ms < 1_000
    assert message.properties["UNIQ_KEY"] == "KEYone"
    assert message.born_ms < deliver_ms - 100


async def test_levels_and_times_come_in_the_order_of_their_times(start_broker: Any) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock)
    wiring = broker.wiring
    now_ms = clock.now_ms()
    send_later(wiring, "t", [b"third"], deliver_ms=now_ms + 70_000)
    send_later(wiring, "t", [b"first"], level=1)
    send_later(wiring, "t", [b"second"], level=3)
    send_later(wiring, "t", [b"last"], deliver_ms=now_ms + HOUR_MS)
    await until_delivered(wiring, "t", 1)
    clock.ahead_ms += 71_000
    messages = await until_delivered(wiring, "t", 3)
    assert [message.body for message in messages] == [b"first", b"second", b"third"]


async def test_a_clock_that_jumps_back_delivers_nothing_twice(start_broker: Any) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock)
    wiring = broker.wiring
    now_ms = clock.now_ms()
    send_later(wiring, "t", [b"%d" % number for number in range(20)], deliver_ms=now_ms + 60_000)
    clock.ahead_ms += 61_000
    await until_delivered(wiring, "t", 20)
    clock.ahead_ms -= 2 * HOUR_MS
    send_later(wiring, "t", [b"later"], deliver_ms=now_ms + 90_000)
    clock.ahead_ms += 3 * HOUR_MS
    messages = await until_delivered(wiring, "t", 21)
    await settled(broker.wiring)
    assert sorted(message.body for message in messages) == sorted(
        [*(b"%d" % number for number in range(20)), b"later"]
    )
    assert len(delivered(wiring, "t")) == 21


async def test_a_clock_that_is_set_back_delivers_nothing_of_a_level_early(
    start_broker: Any,
) -> None:
    """Nor does it hold up anything for as long as the clock was ahead."""
    clock = SetClock()
    broker = await start_broker(clock=clock)
    wiring = broker.wiring
    clock.ahead_ms += HOUR_MS
    send_later(wiring, "t", [b"while it was ahead"], level=5)
    await until(lambda: wiring.delays.feeder.levels[5].queue_end == 1)
    clock.ahead_ms -= HOUR_MS
    send_later(wiring, "t", [b"after it"], level=5)
    await until(lambda: wiring.delays.feeder.levels[5].queue_end == 2)
    await settled(wiring)
    clock.ahead_ms += 50_000
    await settled(wiring)
    assert delivered(wiring, "t") == []
    clock.ahead_ms += 11_000
    messages = await until_delivered(wiring, "t", 2)
    assert {each.body for each in messages} == {b"while it was ahead", b"after it"}


async def test_a_level_that_is_shortened_keeps_the_time_of_what_waits(start_broker: Any) -> None:
    clock = SetClock()
    stores = [
        StoreConfig(segment_bytes=1 << 20, disk_free_bytes_min=0, delay_levels_ms=(delay_ms,))
        for delay_ms in (HOUR_MS, 60_000)
    ]
    broker = await start_broker(clock=clock, store=stores[0])
    send_later(broker.wiring, "t", [b"an hour"], level=1)
    due_ms = clock.now_ms() + HOUR_MS
    await broker.stop()
    again = await start_broker(clock=clock, store=stores[1])
    send_later(again.wiring, "t", [b"a minute"], level=1)
    await settled(again.wiring)
    clock.ahead_ms += 60_001
    assert [each.body for each in await until_delivered(again.wiring, "t", 1)] == [b"a minute"]
    await settled(again.wiring)
    assert len(delivered(again.wiring, "t")) == 1
    clock.set_to(due_ms)
    assert (await until_delivered(again.wiring, "t", 2))[1].body == b"an hour"


async def test_what_was_delivered_is_not_after_a_start_and_what_waits_is(
    start_broker: Any,
) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock)
    now_ms = clock.now_ms()
    send_later(broker.wiring, "t", [b"soon"], deliver_ms=now_ms + 1_000)
    send_later(broker.wiring, "t", [b"level"], level=5)
    send_later(broker.wiring, "t", [b"later"], deliver_ms=now_ms + HOUR_MS)
    clock.ahead_ms += 2_000
    await until_delivered(broker.wiring, "t", 1)
    await broker.stop()
    again = await start_broker(clock=clock)
    assert again.wiring.folder.features[Delays].state.next_offset > 0, (
        "the file saves reading the journal"
    )
    await settled(again.wiring)
    assert [each.body for each in delivered(again.wiring, "t")] == [b"soon"]
    clock.ahead_ms += 2 * HOUR_MS
    messages = await until_delivered(again.wiring, "t", 3)
    assert [each.body for each in messages] == [b"soon", b"level", b"later"]


async def test_a_message_whose_topic_is_gone_is_set_aside(start_broker: Any, caplog: Any) -> None:
    topics = {name: TopicConfig(name=name, read_queue_count=1) for name in ("t", "gone")}
    broker = await start_broker(topics=topics)
    wiring = broker.wiring
    now_ms = wiring.clock.now_ms()
    send_later(wiring, "gone", [b"lost"], deliver_ms=now_ms + 200)
    send_later(wiring, "t", [b"kept"], deliver_ms=now_ms + 200)
    wiring.folder.topics.remove("gone")
    await until_delivered(wiring, "t", 1)
    await settled(broker.wiring)
    assert wiring.delays.copies.given_up == 1
    assert "topic gone was deleted while it waited" in caplog.text
    assert wiring.store.queues.bounds("gone", 0).max_offset == 0


async def test_many_are_delivered_each_once(start_broker: Any) -> None:
    broker = await start_broker()
    wiring = broker.wiring
    now_ms = wiring.clock.now_ms()
    bodies = [b"%d" % number for number in range(3_000)]
    for first in range(0, len(bodies), 500):
        for queue_id in range(4):
            some = bodies[first + queue_id * 125 : first + queue_id * 125 + 125]
            send_later(wiring, "t", some, queue_id=queue_id, deliver_ms=now_ms + 1_500 + first % 7)
        await asyncio.sleep(0)
    for queue_id in range(4):
        await until_delivered(wiring, "t", 750, queue_id=queue_id)
    await settled(broker.wiring)
    messages = [each for queue_id in range(4) for each in delivered(wiring, "t", queue_id)]
    assert sorted(each.body for each in messages) == sorted(bodies)
    assert min(each.stored_ms for each in messages) >= now_ms + 1_500
