"""All groups at a glance: summed over brokers, and unknown where somebody does not know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee import AdminClient, GroupSummary, Message, Producer, PullConsumer, StartFrom
from aerobee.client_core.group_summaries import summaries_of
from aerobee.testing import RealCluster
from aerobee.v1 import broker_pb2
from tests.support.waiting import until


def rows(name: str, members: list[int], unread: int, **others: int) -> broker_pb2.GroupLagRows:
    return broker_pb2.GroupLagRows(
        age_ms=others.get("age_ms", 0),
        groups=[name],
        member_counts=[len(members)],
        member_codes=members,
        topic_counts=[1],
        unread=[unread],
        in_flight=[others.get("in_flight", 0)],
        oldest_ages_ms=[others.get("oldest_ms", 0)],
        dead_letters=[others.get("dead_letters", 0)],
    )


def test_a_member_with_sessions_at_two_brokers_is_one_member() -> None:
    found = summaries_of(
        {
            "a": rows("g", [1, 2], 5, oldest_ms=7, dead_letters=1, age_ms=10),
            "b": rows("g", [2, 3], 6, oldest_ms=4, dead_letters=2, age_ms=30),
        },
        (),
        with_own=False,
    )
    assert found.groups == (
        GroupSummary("g", 3, 1, unread_min=11, unread=11, in_flight=0, oldest_age_ms=7,
                     dead_letters=3),
    )  # fmt: skip
    assert found.age_ms == 30


def test_what_one_broker_does_not_know_is_unknown_in_all() -> None:
    answers = {"a": rows("g", [], 5, oldest_ms=9), "b": rows("g", [], -1, oldest_ms=-1)}
    (group,) = summaries_of(answers, (), with_own=False).groups
    assert (group.unread_min, group.unread, group.oldest_age_ms) == (5, None, None)


def test_a_broker_that_does_not_answer_makes_numbers_lower_bounds() -> None:
    (group,) = summaries_of({"a": rows("g", [], 5)}, ("b",), with_own=False).groups
    assert (group.unread_min, group.unread, group.in_flight) == (5, None, None)


def test_groups_of_the_system_are_left_out_unless_asked_for() -> None:
    answers = {"a": rows("CID_RMQ_SYS_DEAD_LETTERS", [], 0)}
    assert summaries_of(answers, (), with_own=False).groups == ()
    assert len(summaries_of(answers, (), with_own=True).groups) == 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with RealCluster(tmp_path_factory.mktemp("cluster"), groups=2) as cluster:
        yield cluster


async def test_a_real_cluster_says_what_a_group_has_not_read(
    cluster: RealCluster, tmp_path: Path
) -> None:
    cluster.create_topic("s", queues=2)
    cluster.create_topic("other", queues=2)
    async with Producer(cluster.nameservers) as producer:
        for _ in range(6):
            await producer.send(Message("s", b"x"))
    reading = PullConsumer("reading", nameservers=cluster.nameservers, start_from=StartFrom.FIRST)
    reading.subscribe("s")
    async with AdminClient(cluster.nameservers) as admin:
        async with reading:
            await until(lambda: _polled(reading))

            async def is_known() -> bool:
                groups = {each.name: each for each in (await admin.groups.summaries()).groups}
                return "reading" in groups and groups["reading"].members == 1

            await until(is_known)

        async def says_six() -> bool:
            await admin.offsets.reset(
                "reading",
                {each.queue: 0 for each in (await admin.topics.describe("s")).queues},
            )
            groups = {each.name: each for each in (await admin.groups.summaries()).groups}
            return groups["reading"].unread == 6

        await until(says_six)
        assert [each.name for each in (await admin.groups.summaries(topic="s")).groups] == [
            "reading"
        ]
        assert (await admin.groups.summaries(topic="other")).groups == ()
        (found,) = (await admin.groups.summaries(group="reading")).groups
        assert found.unread == 6
        assert (await admin.groups.summaries(group="nobody")).groups == ()


async def _polled(consumer: PullConsumer) -> bool:
    return bool(await consumer.poll(1, timeout=0.5))
