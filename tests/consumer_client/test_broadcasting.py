"""Broadcasting: everybody gets everything, offsets stay at home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from aerobee.consumer_client import (
    ConsumerConfig,
    MessageQueue,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from aerobee.consumer_client.local_offsets import decode_offsets, encode_offsets
from aerobee.runtime import errors
from tests.support.real_brokers import RealCluster
from tests.support.waiting import until


class Collector:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        self.bodies += [message.body for message in messages]


def broadcaster(
    cluster: RealCluster,
    folder: Path,
    seen: Collector,
    options: ConsumerConfig,
    client_id: str = "host@DEFAULT",
) -> PushConsumer:
    return PushConsumer(
        "g",
        seen,
        run_in_thread=False,
        nameservers=cluster.address,
        broadcasting=True,
        client_id=client_id,
        offsets_folder=folder,
        start_from=StartFrom.FIRST,
        config=options,
    ).subscribe("orders")


async def test_every_member_gets_everything_and_goes_on_where_it_was(
    cluster: RealCluster, tmp_path: Path, quick: ConsumerConfig
) -> None:
    for queue_id in range(4):
        await cluster.send("orders", queue_id, [b"a%d" % queue_id] * 5)
    one, two = Collector(), Collector()
    async with (
        broadcaster(cluster, tmp_path, one, quick, "one"),
        broadcaster(cluster, tmp_path, two, quick, "two"),
    ):
        await until(lambda: len(one.bodies) == len(two.bodies) == 20)
        description = await cluster.group("g")
        assert {member.client_id for member in description.members} == {"one", "two"}
        assert all(member.broadcasting for member in description.members)
    path = tmp_path / "one" / "g" / "offsets.json"
    assert decode_offsets(path.read_bytes()) == {
        MessageQueue("orders", "broker-a", queue_id): 5 for queue_id in range(4)
    }
    assert await cluster.committed("g") == {}
    await cluster.send("orders", 2, [b"new"])
    again = Collector()
    async with broadcaster(cluster, tmp_path, again, quick, "one"):
        await until(lambda: again.bodies == [b"new"])


async def test_a_file_that_apaches_client_left_is_taken_up(
    cluster: RealCluster, tmp_path: Path, quick: ConsumerConfig
) -> None:
    await cluster.send("orders", 0, [b"m%d" % number for number in range(6)])
    path = tmp_path / "host@DEFAULT" / "g" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode_offsets({MessageQueue("orders", "broker-a", 0): 4}))
    seen = Collector()
    async with broadcaster(cluster, tmp_path, seen, quick):
        await until(lambda: seen.bodies == [b"m4", b"m5"])


async def test_a_damaged_file_ends_the_consumer_with_one_sentence(
    cluster: RealCluster, tmp_path: Path, quick: ConsumerConfig
) -> None:
    path = tmp_path / "host@DEFAULT" / "g" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{{{")
    with pytest.raises(errors.InvalidArgument, match="is damaged"):
        await broadcaster(cluster, tmp_path, Collector(), quick).run()


async def test_two_live_processes_cannot_share_one_offset_file(
    cluster: RealCluster, tmp_path: Path, quick: ConsumerConfig
) -> None:
    first = broadcaster(cluster, tmp_path, Collector(), quick)
    async with first:
        await until(lambda: len(first.statistics().queues) == 4)
        with pytest.raises(errors.DuplicateClient):
            await broadcaster(cluster, tmp_path, Collector(), quick).run()


async def test_a_pull_consumer_can_broadcast_too(
    cluster: RealCluster, tmp_path: Path, quick: ConsumerConfig
) -> None:
    await cluster.send("orders", 1, [b"x"] * 3)
    consumer = PullConsumer(
        "g",
        nameservers=cluster.address,
        broadcasting=True,
        client_id="puller",
        offsets_folder=tmp_path,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("orders")
    async with consumer:
        assert len(await consumer.poll(timeout=5)) == 3
        await consumer.commit()
    offsets = decode_offsets((tmp_path / "puller" / "g" / "offsets.json").read_bytes())
    assert offsets[MessageQueue("orders", "broker-a", 1)] == 3
