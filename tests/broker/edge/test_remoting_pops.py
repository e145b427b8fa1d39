"""POP over remoting at one broker: what is handed out, acknowledged, and comes again."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aerobee.broker.edge.remoting.feature import Remoting
from aerobee.rocketmq_remoting.codes import Code
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.dead_letter_fields import read_dead_letter
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.remoting_peer import (
    Peer,
    Popped,
    acknowledge,
    bodies_of,
    peer_at,
    pop,
    records_of,
)
from tests.support.waiting import until

RETRY = "%RETRY%g"


def topic(name: str, queues: int) -> TopicConfig:
    return TopicConfig(name=name, read_queue_count=queues, write_queue_count=queues)


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    topics = (topic("t", 2), topic("one", 1))
    return await start_broker(topics={each.name: each for each in topics})


@pytest.fixture
async def peer(broker: RunningBroker) -> AsyncIterator[Peer]:
    async with peer_at(broker.port) as peer:
        yield peer


async def sent(peer: Peer, name: str, *bodies: bytes, queue_id: int = 0, **more: Any) -> None:
    for body in bodies:
        assert (await peer.send(name, body, queue_id, **more)).code == 0


def bodies(popped: list[Popped]) -> list[bytes]:
    return [each.body for each in popped]


async def change(peer: Peer, popped: Popped, name: str, ms: int, **more: Any) -> str:
    """The new handle, as a client makes it."""
    fields = {**popped.named("g", name), "invisibleTime": ms, **more}
    told = (await peer.done(200053, **fields)).fields
    _, _, _, _, mark, broker_name, queue_id, offset = popped.handle.split(" ")
    times = " ".join(told[each] for each in ("popTime", "invisibleTime", "reviveQid"))
    return f"{offset} {times} {mark} {broker_name} {queue_id} {offset}"


async def comes_again(peer: Peer, name: str, **more: Any) -> list[Popped]:
    return await pop(peer, "g", name, wait_ms=10_000, **more)


# ------------------------------------------------------------------------------ deliveries


async def test_a_commit_beside_pop_changes_nothing_and_a_reset_counts(peer: Peer) -> None:
    """Tools that set an offset do both."""
    await sent(peer, "one", b"1", b"2", b"3")
    assert len(await pop(peer, "g", "one")) == 3
    answer = await peer.commit("g", "one", 1)
    assert (answer.code, "nothing is committed" in answer.remark) == (0, True)
    assert await pop(peer, "g", "one") == []
    await peer.done(222, group="g", topic="one", timestamp=0, queueId=0, offset=1)
    assert bodies(await pop(peer, "g", "one")) == [b"2", b"3"]


async def test_what_is_acknowledged_does_not_come_again(peer: Peer) -> None:
    await sent(peer, "one", b"1", b"2", b"3")
    first, second, third = await pop(peer, "g", "one", invisible_ms=300)
    assert [first.body, second.body, third.body] == [b"1", b"2", b"3"]
    assert await acknowledge(peer, "g", "one", first, third) == [0, 0]
    (again,) = await comes_again(peer, "one")
    assert again.body == b"2"
    assert (second.record.reconsume_times, again.record.reconsume_times) == (0, 1)
    assert await pop(peer, "g", "one") == []


async def test_an_acknowledgement_may_be_repeated_but_not_after_another_delivery(
    peer: Peer,
) -> None:
    await sent(peer, "one", b"1", b"2")
    first, second = await pop(peer, "g", "one", invisible_ms=200)
    assert await acknowledge(peer, "g", "one", first, first) == [0, 0]
    (again,) = await comes_again(peer, "one")
    assert again.handle != second.handle
    assert await acknowledge(peer, "g", "one", second, again) == [Code.NO_MESSAGE, 0]


async def test_a_poll_has_messages_of_all_queues_or_of_the_one_that_it_names(peer: Peer) -> None:
    for queue_id in (0, 1):
        await sent(peer, "t", b"%d" % queue_id, queue_id=queue_id)
    assert bodies(await pop(peer, "named", "t", queue_id=1)) == [b"1"]
    found = await pop(peer, "g", "t")
    assert sorted(bodies(found)) == [b"0", b"1"]
    assert await acknowledge(peer, "g", "t", *found) == [0, 0]
    answer = await peer.ask(
        200050, consumerGroup="g", topic="t", queueId=7, maxMsgNums=1, invisibleTime=1_000
    )
    assert answer.code == Code.SYSTEM_ERROR


async def test_a_changed_time_gives_a_new_handle_and_voids_the_old_one(peer: Peer) -> None:
    await sent(peer, "one", b"1")
    (first,) = await pop(peer, "g", "one", invisible_ms=60_000)
    handle = await change(peer, first, "one", 100)
    assert await acknowledge(peer, "g", "one", first) == [Code.NO_MESSAGE]
    started = time.monotonic()
    (again,) = await comes_again(peer, "one")
    assert time.monotonic() - started < 5
    assert again.record.reconsume_times == 1
    assert await acknowledge(peer, "g", "one", first._replace(handle=handle)) == [Code.NO_MESSAGE]
    longer = await change(peer, again, "one", 60_000)
    assert await acknowledge(peer, "g", "one", again._replace(handle=longer)) == [0]


async def test_a_batch_of_acknowledgements_names_messages_by_bits(peer: Peer) -> None:
    await sent(peer, "one", *(b"%d" % number for number in range(20)))
    found = await pop(peer, "g", "one", invisible_ms=300)
    start, popped_ms, invisible_ms, revive, mark, name, queue_id, _ = found[0].handle.split(" ")
    bits = sum(1 << each.record.queue_offset - int(start) for each in found[1:19])
    ack = {"c": "g", "t": "one", "r": mark, "so": int(start), "q": int(queue_id),
           "rq": int(revive), "pt": int(popped_ms), "it": int(invisible_ms),
           "b": base64.b64encode(bits.to_bytes(3, "little")).decode()}  # fmt: skip
    body = json.dumps({"brokerName": name, "acks": [ack]}).encode()
    assert (await peer.ask(200151, body)).code == 0
    assert bodies(await comes_again(peer, "one")) == [b"0", b"19"]
    ack["pt"] = int(popped_ms) - 1
    body = json.dumps({"brokerName": name, "acks": [{**ack, "b": "gAAI"}]}).encode()
    assert (await peer.ask(200151, body)).code == Code.NO_MESSAGE


async def test_made_up_handles_change_nothing(peer: Peer) -> None:
    await sent(peer, "one", b"1")
    (popped,) = await pop(peer, "g", "one")
    parts = popped.handle.split(" ")
    for at, value, code in (
        (1, str(int(parts[1]) + 1), Code.NO_MESSAGE),
        (2, str(int(parts[2]) + 1), Code.NO_MESSAGE),
        (3, "7", Code.INVALID_PARAMETER),
        (5, "broker-b", Code.INVALID_PARAMETER),
        (7, "1", Code.INVALID_PARAMETER),
        (0, "x", Code.INVALID_PARAMETER),
    ):
        made_up = popped._replace(handle=" ".join((*parts[:at], value, *parts[at + 1 :])))
        assert await acknowledge(peer, "g", "one", made_up) == [code], made_up.handle
    assert await acknowledge(peer, "other", "one", popped) == [Code.NO_MESSAGE]
    assert await acknowledge(peer, "g", "one", popped) == [0]


async def test_filters_choose_what_is_handed_out(peer: Peer) -> None:
    for tag in "aba":
        await sent(peer, "one", tag.encode(), properties=f"TAGS\x01{tag}\x02n\x01{ord(tag)}\x02")
    assert bodies(await pop(peer, "g", "one", exp="a", expType="TAG")) == [b"a", b"a"]
    assert bodies(await pop(peer, "sql", "one", exp="n > 97", expType="SQL92")) == [b"b"]
    fields: dict[str, Any] = {"consumerGroup": "h", "topic": "one", "queueId": -1, "maxMsgNums": 1,
              "invisibleTime": 1_000, "exp": "n >", "expType": "SQL92"}  # fmt: skip
    assert (await peer.ask(200050, **fields)).code == Code.SUBSCRIPTION_PARSE_FAILED


async def test_after_its_last_delivery_a_message_is_a_dead_letter(
    broker: RunningBroker, peer: Peer
) -> None:
    policy = {"groupName": "g", "retryMaxTimes": 1}
    await peer.done(200, json.dumps(policy).encode())
    await sent(peer, "one", b"1")
    assert bodies(await pop(peer, "g", "one", invisible_ms=50)) == [b"1"]
    assert bodies(await comes_again(peer, "one", invisible_ms=50)) == [b"1"]
    assert await pop(peer, "g", "one", wait_ms=500) == []
    (dead,) = records_of(
        await peer.pull("look", "%DLQ%g", wait_ms=10_000, sysFlag=6, subscription="*")
    )
    letter = read_dead_letter(dead)
    assert (letter.origin.topic, letter.death.attempts) == ("one", 2)


# ------------------------------------------------------------------------------ order


async def test_in_order_nothing_follows_what_is_not_finished(peer: Peer) -> None:
    await sent(peer, "one", b"1", b"2", b"3")
    (first,) = await pop(peer, "g", "one", count=1, order=True)
    assert await pop(peer, "g", "one", count=1, order=True) == []
    assert await acknowledge(peer, "g", "one", first) == [0]
    assert bodies(await pop(peer, "g", "one", count=1, order=True)) == [b"2"]


async def test_in_order_a_poll_gets_a_run_which_comes_again_from_its_first_unfinished_message(
    peer: Peer,
) -> None:
    await sent(peer, "one", b"1", b"2", b"3")
    run = await pop(peer, "g", "one", count=3, order=True, invisible_ms=300)
    assert bodies(run) == [b"1", b"2", b"3"]
    assert run[0].handle.split(" ")[3] == "999"
    await sent(peer, "one", b"4")
    assert await acknowledge(peer, "g", "one", run[0]) == [0]
    again = await comes_again(peer, "one", order=True)
    assert bodies(again) == [b"2", b"3", b"4"]
    assert [each.record.reconsume_times for each in again] == [1, 1, 0]
    assert await acknowledge(peer, "g", "one", *again) == [0, 0, 0]


# ------------------------------------------------------------------------------ waiting


async def test_a_waiting_poll_gets_a_message_at_once(broker: RunningBroker, peer: Peer) -> None:
    pops = broker.feature(Remoting).pops
    waiting = asyncio.ensure_future(pop(peer, "g", "t", wait_ms=20_000))
    await until(lambda: pops.waiting == 1)
    started = time.monotonic()
    await sent(peer, "t", b"now")
    assert bodies(await waiting) == [b"now"]
    assert time.monotonic() - started < 1
    assert pops.waiting == 0


async def test_a_poll_that_waits_in_vain_is_answered_in_time(peer: Peer) -> None:
    fields: dict[str, Any] = {"consumerGroup": "g", "topic": "t", "queueId": -1, "maxMsgNums": 1,
              "invisibleTime": 1_000, "pollTime": 200}  # fmt: skip
    started = time.monotonic()
    assert (await peer.ask(200050, **fields)).code == Code.POLLING_TIMEOUT
    assert 0.2 <= time.monotonic() - started < 5
    assert (await peer.ask(200050, **{**fields, "pollTime": 0})).code == Code.POLLING_TIMEOUT


async def test_polls_of_a_client_that_has_gone_leave_nothing(
    broker: RunningBroker, peer: Peer
) -> None:
    pops = broker.feature(Remoting).pops
    async with peer_at(broker.port) as leaving:
        waiting = asyncio.ensure_future(pop(leaving, "g", "t", wait_ms=30_000))
        await until(lambda: pops.waiting == 1)
    with pytest.raises(ConnectionError):
        await waiting
    await until(lambda: pops.waiting == 0)
    await sent(peer, "t", b"for others")
    assert bodies(await pop(peer, "g", "t", wait_ms=10_000)) == [b"for others"]


async def test_each_of_many_waiting_polls_gets_one_of_as_many_messages(peer: Peer) -> None:
    polls = [
        asyncio.ensure_future(pop(peer, "g", "t", count=1, wait_ms=20_000)) for _ in range(300)
    ]
    await asyncio.sleep(0.2)
    for number in range(300):
        await sent(peer, "t", b"%d" % number, queue_id=number % 2)
    found = [popped for each in polls for popped in await each]
    assert sorted(int(each.body) for each in found) == list(range(300))


async def test_a_notification_takes_nothing(peer: Peer) -> None:
    fields: dict[str, Any] = {"consumerGroup": "g", "topic": "t", "queueId": 0, "pollTime": 100}
    assert (await peer.done(200054, **fields)).fields["hasMsg"] == "false"
    waiting = asyncio.ensure_future(peer.done(200054, **{**fields, "pollTime": 20_000}))
    await asyncio.sleep(0.1)
    assert (await peer.done(200055, **fields)).fields["pollingNum"] == "1"
    await sent(peer, "t", b"1")
    assert (await waiting).fields["hasMsg"] == "true"
    assert bodies(await pop(peer, "g", "t", queue_id=0)) == [b"1"]
    assert (await peer.done(200054, **fields)).fields["hasMsg"] == "false"


async def test_every_waiting_notification_is_told_and_the_poll_behind_them_gets_it(
    broker: RunningBroker, peer: Peer
) -> None:
    """What takes nothing leaves the message to the next one."""
    fields: dict[str, Any] = {"consumerGroup": "g", "topic": "one", "queueId": 0}
    fields["pollTime"] = 20_000
    waiting = [asyncio.ensure_future(peer.done(200054, **fields)) for _ in range(3)]

    async def until_waiting(count: int) -> None:
        async def do_wait() -> bool:
            return (await peer.done(200055, **fields)).fields["pollingNum"] == str(count)

        await until(do_wait)

    await until_waiting(3)
    async with peer_at(broker.port, "c2") as other:
        poll = asyncio.ensure_future(pop(other, "g", "one", wait_ms=20_000))
        await until_waiting(4)
        await sent(peer, "one", b"1")
        for each in waiting:
            assert (await each).fields["hasMsg"] == "true"
        assert bodies(await poll) == [b"1"]


# ------------------------------------------------------------------------------ modes


async def set_mode(peer: Peer, mode: str, name: str = "t") -> None:
    body = {"topic": name, "consumerGroup": "g", "mode": mode, "popShareQueueNum": 8}
    await peer.done(401, json.dumps(body).encode())


async def test_a_group_goes_from_pull_to_pop_and_back_at_its_place(peer: Peer) -> None:
    await sent(peer, "one", b"1", b"2", b"3", b"4")
    await peer.beat("g", "one")
    assert bodies_of(await peer.pull("g", "one"))[:1] == [b"1"]
    await peer.commit("g", "one", 1)
    fields: dict[str, Any] = {"consumerGroup": "g", "topic": "one", "queueId": -1}
    refused = await peer.ask(200050, **fields, maxMsgNums=1, invisibleTime=1_000)
    assert refused.code == Code.SYSTEM_BUSY, "its members pull"

    await set_mode(peer, "POP", "one")
    await until(lambda: any(each.code == 40 for each in peer.told))
    assert (await peer.pull("g", "one", 1)).code == Code.SYSTEM_BUSY
    popped = await pop(peer, "g", "one", count=2)
    assert bodies(popped) == [b"2", b"3"]
    assert await acknowledge(peer, "g", "one", *popped) == [0, 0]
    assert bodies(await pop(peer, "g", "one", invisible_ms=200)) == [b"4"]

    await set_mode(peer, "PULL", "one")
    await until_pulled(peer, b"4")
    assert await peer.offset("g", "one") == 3


async def until_pulled(peer: Peer, body: bytes) -> None:
    async with asyncio.timeout(10):
        while True:
            answer = await peer.pull("g", "one", 3)
            if answer.code == 0:
                assert bodies_of(answer) == [body]
                return
            await asyncio.sleep(0.05)


async def test_the_mode_is_kept_and_told_to_members(
    broker: RunningBroker, peer: Peer, start_broker: StartBroker
) -> None:
    modes = broker.feature(Remoting).modes
    assert not modes.is_pop("g", "t")
    await set_mode(peer, "POP")
    assert modes.is_pop("g", "t")
    assert not modes.is_pop("g", "one")
    assert not modes.is_pop("h", "t")
    await set_mode(peer, "PULL")
    assert not modes.is_pop("g", "t")
    for body in (b"{}", b'{"topic":"%RETRY%g","consumerGroup":"g","mode":"POP"}',
                 b'{"topic":"t","consumerGroup":"g","mode":"x"}'):  # fmt: skip
        assert (await peer.ask(401, body)).code == Code.INVALID_PARAMETER
    absent = b'{"topic":"absent","consumerGroup":"g","mode":"POP"}'
    assert (await peer.ask(401, absent)).code == Code.TOPIC_NOT_EXIST


async def test_waiting_polls_end_when_members_shall_pull(broker: RunningBroker, peer: Peer) -> None:
    pops = broker.feature(Remoting).pops
    await set_mode(peer, "POP")
    waiting = asyncio.ensure_future(pop(peer, "g", "t", wait_ms=30_000))
    await until(lambda: pops.waiting == 1)
    await set_mode(peer, "PULL")
    assert await waiting == []
