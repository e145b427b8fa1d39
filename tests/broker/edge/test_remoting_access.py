"""Remoting at a broker with access control: what users may do, by which signature, and who pays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.access.quota import DEFAULT, Quota, Subject, encode_quota
from aerobee.access.table import Record, Records
from aerobee.broker.edge.remoting.feature import Remoting
from aerobee.remoting_core.command import Command
from aerobee.rocketmq_remoting.codes import Code
from aerobee.runtime.audit_log.config import AuditLogConfig
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.message_id import parse_offset_message_id
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.known_users import KnownUsers
from tests.support.remoting_peer import Peer, bodies_of, peer_at, records_of
from tests.support.waiting import until

SHOP = ("Allow Topic:t Pub,Sub", "Allow Group:g Sub")


@pytest.fixture
def users(tmp_path: Path) -> KnownUsers:
    return KnownUsers(tmp_path, shop=SHOP, bank=("Allow Topic:bank Pub",), nobody=())


TOPICS = {
    name: TopicConfig(name=name, read_queue_count=2, write_queue_count=2) for name in ("t", "bank")
}


@pytest.fixture
async def broker(start_broker: StartBroker, users: KnownUsers) -> RunningBroker:
    broker = await start_broker(access=users.config, topics=TOPICS)
    users.tell(broker.access.book)
    return broker


@pytest.fixture
async def shop(broker: RunningBroker, users: KnownUsers) -> AsyncIterator[Peer]:
    async with peer_at(broker.port, key=users.key("shop")) as peer:
        yield peer


@pytest.fixture
async def bank(broker: RunningBroker, users: KnownUsers) -> AsyncIterator[Peer]:
    async with peer_at(broker.port, "c2", key=users.key("bank")) as peer:
        yield peer


async def test_a_user_does_what_its_policies_allow(shop: Peer) -> None:
    assert (await shop.send("t", b"one")).code == 0
    await shop.beat("g", "t", producers=("PG",))
    answer = await shop.pull("g", "t")
    assert bodies_of(answer) == [b"one"]
    (record,) = records_of(answer)
    await shop.done(36, offset=record.physical_offset, group="g", delayLevel=1)
    assert (await shop.commit("g", "t", 1)).code == 0
    assert await shop.offset("g", "t") == 1
    await shop.done(33, offset=record.physical_offset)
    await shop.done(35, clientID="c1", consumerGroup="g")


async def test_each_request_is_refused_without_the_right(broker: RunningBroker, shop: Peer) -> None:
    queue: dict[str, Any] = {"queueId": 0, "topic": "bank"}
    locks = {"clientId": "c1", "consumerGroup": "g",
             "mqSet": [{"brokerName": broker.config.broker_name, **queue}]}  # fmt: skip
    beat = {
        "clientID": "c1",
        "consumerDataSet": [
            {"groupName": "g", "subscriptionDataSet": [{"topic": "bank", "subString": "*"}]}
        ],
    }
    refused = [
        await shop.send("bank", b"x"),
        await shop.ask(10, b"x", producerGroup="PG", sysFlag=0, bornTimestamp=1, flag=0, **queue),
        await shop.pull("g", "bank"),
        await shop.pull("other", "t"),
        await shop.pull("g", "SCHEDULE_TOPIC_XXXX"),
        await shop.ask(14, consumerGroup="g", **queue),
        await shop.commit("other", "t", 1),
        await shop.ask(30, **queue),
        await shop.ask(31, **queue),
        await shop.ask(32, **queue),
        await shop.ask(29, timestamp=1, **queue),
        await shop.ask(12, key="k", **queue),
        await shop.ask(202, **queue),
        await shop.ask(351, **queue),
        await shop.ask(208, consumerGroup="other"),
        await shop.ask(28),
        await shop.ask(38, consumerGroup="other"),
        await shop.ask(35, clientID="c1", consumerGroup="other"),
        await shop.ask(34, json.dumps(beat).encode()),
        await shop.ask(41, json.dumps(locks).encode()),
        await shop.ask(42, json.dumps(locks).encode()),
        await shop.ask(46, json.dumps({"group": "other"}).encode()),
        await shop.ask(36, offset=0, group="other", delayLevel=1),
    ]
    assert {answer.code for answer in refused} == {Code.NO_PERMISSION}
    assert "needs Pub on Topic:bank" in refused[0].remark


async def test_changes_need_the_rights_of_administrators(users: KnownUsers, shop: Peer) -> None:
    settings = json.dumps({"groupName": "g"}).encode()
    asked: list[tuple[int, bytes, dict[str, Any]]] = [
        (17, b"", {"topic": "t", "writeQueueNums": 1}),
        (215, b"", {"topic": "t"}),
        (200, settings, {}),
        (207, b"", {"groupName": "g", "cleanOffset": True}),
        (222, b"", {"group": "g", "topic": "t", "timestamp": -1}),
        (314, b"", {"srcGroup": "g", "destGroup": "h"}),
        (309, b"", {"consumerGroup": "g", "clientId": "c1"}),
        (26, b"", {}),
        (315, b"", {"statsName": "TOPIC_PUT_NUMS", "statsKey": "t"}),
        (203, b"", {"consumerGroup": "other"}),
        (204, b"", {"producerGroup": "PG"}),
        (307, b"", {"consumerGroup": "other", "clientId": "c1"}),
        (324, b"", {"producerGroup": "PG", "topic": "aerobee_REPLY_TOPIC", "queueId": 0}),
    ]
    for code, body, fields in asked:
        assert (await shop.ask(code, body, **fields)).code == Code.NO_PERMISSION, code
    users.may("shop", "Allow Topic:t Update,Get", "Allow Group:* Update,Delete,Get,Sub")
    answer = await shop.ask(17, topic="t", writeQueueNums=1)
    assert "needs Create on Topic:t" in answer.remark
    await shop.done(200, settings)
    await shop.done(222, group="g", topic="t", timestamp=-1)
    await shop.done(207, groupName="g", cleanOffset=True)


async def test_a_change_is_a_line_of_the_audit_log_without_secrets(
    start_broker: StartBroker, users: KnownUsers, tmp_path: Path
) -> None:
    file = tmp_path / "audit.log"
    broker = await start_broker(
        access=users.config, audit_log=AuditLogConfig(file=str(file)), topics=TOPICS
    )
    users.tell(broker.access.book)
    users.may("shop", "Allow Group:g Update")
    async with peer_at(broker.port, key=users.key("shop")) as peer:
        await peer.done(200, json.dumps({"groupName": "g"}).encode(), more="x")
        await peer.ask(207, groupName="g")
    await broker.stop()
    found = map(json.loads, file.read_text().splitlines())
    lines = [line for line in found if "/remoting/" in str(line)]
    act, refusal = lines
    assert act["method"] == "/remoting/UPDATE_AND_CREATE_SUBSCRIPTIONGROUP"
    assert (act["caller"], act["result"]) == ("user shop", "ok")
    assert (act["needs"], act["request"]) == (["Update on Group:g"], {"more": "x"})
    assert refusal["event"] == "refusal"


async def test_both_spellings_of_a_send_in_one_request_get_around_nothing(shop: Peer) -> None:
    answer = await shop.ask(310, b"x", a="PG", b="t", topic="bank", e=0, f=0, g=1, h=0)
    assert answer.code == Code.NO_PERMISSION


async def test_a_message_is_as_secret_as_its_topic(bank: Peer, shop: Peer) -> None:
    sent = await bank.send("bank", b"secret")
    _, position = parse_offset_message_id(sent.fields["msgId"])
    seen = await shop.ask(33, offset=position)
    copied = await shop.ask(36, offset=position, group="g", delayLevel=1)
    half = await bank.send("bank", b"half", properties="TRAN_MSG\x01true\x02PGROUP\x01PG\x02")
    _, position = parse_offset_message_id(half.fields["msgId"])
    ended = await shop.ask(
        37, producerGroup="PG", tranStateTableOffset=half.fields["queueOffset"],
        commitLogOffset=position, commitOrRollback=8, topic="t",
    )  # fmt: skip
    assert [each.code for each in (seen, copied, ended)] == [Code.NO_PERMISSION] * 3
    assert not seen.body


async def test_only_who_may_send_to_the_topic_is_asked_about_its_transactions(
    users: KnownUsers, broker: RunningBroker, shop: Peer, bank: Peer
) -> None:
    for peer in (shop, bank):
        await peer.beat("", producers=("PG",))
    clients = broker.feature(Remoting).clients
    asked = [clients.producer("PG", "bank") for _ in range(4)]
    assert None not in asked
    assert len(set(asked)) == 1
    users.may("bank")
    assert clients.producer("PG", "bank") is None


@pytest.mark.parametrize(
    "what", ["nothing", "another secret", "no user", "another body", "no text"]
)
async def test_a_request_without_proof_is_refused(
    broker: RunningBroker, users: KnownUsers, what: str
) -> None:
    key = {"nothing": None, "another secret": ("shop", b"x"), "no user": ("who", b"x")}.get(
        what, users.key("shop")
    )
    async with peer_at(broker.port, key=key) as peer:
        request = peer.signed(Command(38, {"consumerGroup": "g"}))
        if what == "another body":
            request.body += b"!"
        if what == "no text":
            request.fields = {**request.fields, "Signature": "ä"}
        answer = await peer.client.ask(request)
    assert answer.code == Code.NO_PERMISSION
    assert answer.remark


async def test_a_pull_that_waits_gets_nothing_once_its_right_has_ended(
    users: KnownUsers, bank: Peer, shop: Peer
) -> None:
    await shop.beat("g", "t")
    waiting = asyncio.ensure_future(shop.pull("g", "t", wait_ms=10_000))
    await asyncio.sleep(0.05)
    users.may("shop")
    users.may("bank", "Allow Topic:t Pub")
    assert (await bank.send("t", b"later")).code == 0
    answer = await waiting
    assert (answer.code, answer.body) == (Code.NO_PERMISSION, b"")


async def test_sends_beyond_a_quota_wait_or_are_refused(start_broker: StartBroker) -> None:
    broker = await start_broker()
    record = Record("default", encode_quota(Subject(DEFAULT), Quota(send_requests=5)))
    broker.access.book.hear(Records.of((), (), [record]))
    async with peer_at(broker.port) as peer:
        answers = await asyncio.gather(*(peer.send("t", b"x") for _ in range(40)))
        codes = {answer.code for answer in answers}
        assert codes == {Code.SUCCESS, Code.FLOW_CONTROL}
        quotas = broker.access.quotas
        assert "connections=1" in repr(quotas)
    await until(lambda: "connections=0" in repr(quotas), "the connection counted no longer")


async def test_subscriptions_of_remoting_members_count_towards_the_quota(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(topics=TOPICS)
    record = Record("default", encode_quota(Subject(DEFAULT), Quota(subscriptions=2)))
    broker.access.book.hear(Records.of((), (), [record]))
    async with peer_at(broker.port) as first, peer_at(broker.port, "c2") as second:
        await first.beat("g", "t", "bank", "%RETRY%g")
        with pytest.raises(AssertionError, match="code=215"):
            await second.beat("h", "t")
        assert (await second.pull("h", "t")).code == Code.SUBSCRIPTION_NOT_EXIST
        await first.beat("g", "t", "%RETRY%g")
        await second.beat("h", "t")
        with pytest.raises(AssertionError, match="code=215"):
            await first.beat("g", "t", "bank", "%RETRY%g")
        first.client.close()
        await until(lambda: not broker.feature(Remoting).members.client_ids("g"))
        await second.beat("h", "t", "bank")
