"""A dead letter goes back to the group that failed, and to nobody else unless that is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from aerobee import Message, Ordering, Producer, PushConsumer, ReceivedMessage, StartFrom
from aerobee.testing import RealCluster
from tests.support.cli_here import CliHere
from tests.support.waiting import until

GROUPS = ("failing", "other", "in-order")


class Readers:
    """All groups, whose members keep what they get."""

    def __init__(self, nameservers: str, *, fail: bool) -> None:
        self.got: dict[str, list[ReceivedMessage]] = {group: [] for group in GROUPS}
        self._nameservers, self._fail = nameservers, fail

    def consumer(self, group: str) -> PushConsumer:
        def handle(messages: Sequence[ReceivedMessage]) -> None:
            self.got[group] += messages
            if self._fail and group != "other":
                raise ValueError("no")

        consumer = PushConsumer(
            group,
            handle,
            nameservers=self._nameservers,
            start_from=StartFrom.FIRST,
            ordering=Ordering.ORDERLY if group == "in-order" else Ordering.CONCURRENT,
        )
        consumer.subscribe("s")
        return consumer

    async def read(self, least: dict[str, int]) -> None:
        """Until each group got so many."""
        members = [self.consumer(group) for group in GROUPS]
        async with members[0], members[1], members[2]:
            await until(lambda: all(len(self.got[group]) >= least[group] for group in least))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A message was read by one group, and is a dead letter of the two others."""
    with RealCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.create_topic("s", queues=1)
        cli = CliHere(cluster.nameservers)
        for group in ("failing", "in-order"):
            cli("group", "configure", group, "--retries-max", "0")
        asyncio.run(_sent(cluster.nameservers, "s"))
        asyncio.run(Readers(cluster.nameservers, fail=True).read(dict.fromkeys(GROUPS, 1)))
        yield cluster


async def _sent(nameservers: str, topic: str) -> None:
    async with Producer(nameservers) as producer:
        await producer.send(Message(topic, b"elephant"))


def test_only_the_group_that_failed_gets_a_resent_letter(cluster: RealCluster) -> None:
    cli = CliHere(cluster.nameservers)
    assert cli.json("dead-letter", "resend", "failing", "--yes")["resent"] == 1
    assert cli.json("dead-letter", "list", "failing")["letters"] == []
    readers = Readers(cluster.nameservers, fail=False)
    asyncio.run(_sent(cluster.nameservers, "s"))
    asyncio.run(readers.read({"failing": 2, "other": 1, "in-order": 1}))
    bodies = {group: len(found) for group, found in readers.got.items()}
    assert bodies == {"failing": 2, "other": 1, "in-order": 1}
    again = min(readers.got["failing"], key=lambda each: each.born_timestamp_ms)
    assert (again.origin_topic, again.body, again.reconsume_times) == ("s", b"elephant", 0)


def test_letters_of_an_ordered_group_go_to_all_groups_or_stay(cluster: RealCluster) -> None:
    """It reads no retry topic, so that there they would be lost."""
    cli = CliHere(cluster.nameservers)
    refused = cli("dead-letter", "resend", "in-order", "--yes", code=2)
    assert "--to-all-groups" in refused.stderr
    assert len(cli.json("dead-letter", "list", "in-order")["letters"]) == 1
    cli("dead-letter", "resend", "in-order", "--to-all-groups", "--yes")
    readers = Readers(cluster.nameservers, fail=False)
    asyncio.run(readers.read(dict.fromkeys(GROUPS, 1)))
    assert {group: len(found) for group, found in readers.got.items()} == dict.fromkeys(GROUPS, 1)


def test_one_place_is_given() -> None:
    cli = CliHere("127.0.0.1:1")
    given = ("--to", "t", "--to-all-groups", "--yes")
    assert "either" in cli("dead-letter", "resend", "g", *given, code=2).stderr
