"""Who is connected: pages that are whole, over all brokers and protocols."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aerobee import AdminClient, Message, PullConsumer
from aerobee.client_core.connected_clients import merged
from aerobee.runtime import errors
from aerobee.runtime.own_version import OWN_VERSION
from aerobee.testing import RealCluster
from aerobee.v1 import broker_pb2
from tests.support.waiting import until


def answer(
    *clients: tuple[str, str], more: bool = False, held: int = 1
) -> broker_pb2.ListClientsResponse:
    return broker_pb2.ListClientsResponse(
        clients=[
            broker_pb2.ConnectedClient(
                client_id=client_id,
                group=group,
                queues_held=held,
                heard_age_ms=100 * held,
                address=f"10.0.0.{held}:1",
            )
            for client_id, group in clients
        ],
        more=more,
    )


def test_a_member_with_sessions_at_two_brokers_is_one_row() -> None:
    answers = {"a": answer(("c", "g"), held=2), "b": answer(("c", "g"), held=3)}
    found = merged(answers, ("x",), 10)
    (row,) = found.clients
    assert (row.queues_held, row.last_heard_age_ms) == (5, 200)
    assert row.addresses == ("10.0.0.2:1", "10.0.0.3:1")
    assert (found.more, found.unanswered) == (False, ("x",))


def test_a_page_has_the_first_of_all_brokers_and_says_whether_others_follow() -> None:
    answers = {"a": answer(("a", "g"), ("d", "g"), more=True), "b": answer(("b", "g"), ("c", "g"))}
    found = merged(answers, (), 2)
    assert [each.client_id for each in found.clients] == ["a", "b"]
    assert found.more
    assert not merged({"b": answer(("b", "g"), ("c", "g"))}, (), 2).more


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with RealCluster(tmp_path_factory.mktemp("cluster"), groups=2) as cluster:
        yield cluster


async def test_a_consumer_says_who_it_is_and_what_it_holds(cluster: RealCluster) -> None:
    cluster.create_topic("t", queues=4)
    async with AdminClient(cluster.nameservers) as admin:
        reading = [
            PullConsumer(group, nameservers=cluster.nameservers, client_id=f"client-{group}")
            for group in ("one", "two")
        ]
        for each in reading:
            each.subscribe("t")
        async with reading[0], reading[1]:

            async def held() -> list[int]:
                for each in reading:
                    await each.poll(1, timeout=0.01)
                return [each.queues_held for each in (await admin.clients.list()).clients]

            async def hold_all() -> bool:
                return await held() == [4, 4]

            await until(hold_all)
            first = await admin.clients.list(max_clients=1)
            (one,) = first.clients
            assert (one.client_id, one.group, one.topics) == ("client-one", "one", ("t",))
            assert (one.protocol, one.kind, one.version) == ("aerobee", "consumer", OWN_VERSION)
            assert {address.rpartition(":")[0] for address in one.addresses} == {"127.0.0.1"}
            assert one.last_heard_age_ms < 30_000
            assert first.more
            (two,) = (await admin.clients.list(after=one.place)).clients
            assert two.client_id == "client-two"
            for search, found in (
                ("ENT-TW", [two.place]),
                ("none", []),
                ("127.0.0.1", [one.place, two.place]),
            ):
                clients = (await admin.clients.list(search)).clients
                assert [each.place for each in clients] == found

        async def is_empty() -> bool:
            return not (await admin.clients.list()).clients

        await until(is_empty)


async def test_a_trial_is_sent_once_and_found_where_it_says(cluster: RealCluster) -> None:
    cluster.create_topic("sent", queues=4)
    async with AdminClient(cluster.nameservers) as admin:
        message = Message("sent", b"hello", tag="a", keys=["k-1"], properties={"p": "q"})
        sent = await admin.messages.send(message)
        (found,) = (await admin.messages.from_queue(sent.queue, sent.queue_offset)).messages
        assert (found.message_id, found.body, found.tag) == (sent.message_id, b"hello", "a")
        assert (found.keys, found.properties["p"]) == (("k-1",), "q")
        with pytest.raises(errors.InvalidArgument, match="use a Producer"):
            await admin.messages.send(Message("sent", b"x", delay=5))
        with pytest.raises(errors.TopicNotFound):
            await admin.messages.send(Message("absent", b"x"))
        await admin.topics.update("sent", permission="r")

        async def is_refused() -> bool:
            try:
                await admin.messages.send(message)
            except (errors.NoBrokerAvailable, errors.NotWritableTopic):
                return True
            return False

        await until(is_refused)
