"""Broadcasting: everybody gets everything, offsets stay at home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from aerobee.consumer_client import (
    PushConsumer,
    ReceivedMessage,
)
from aerobee.consumer_client.local_offsets import LocalOffsets, decode_offsets, encode_offsets
from aerobee.runtime import errors
from tests.support.own_topic import OwnTopic
from tests.support.waiting import until


class Collector:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        self.bodies += [message.body for message in messages]


def broadcaster(
    own: OwnTopic,
    folder: Path,
    seen: Collector,
    client_id: str = "host@DEFAULT",
) -> PushConsumer:
    return own.push(seen, broadcasting=True, client_id=client_id, offsets_folder=folder)


async def test_every_member_gets_everything_and_goes_on_where_it_was(
    own: OwnTopic, tmp_path: Path
) -> None:
    for queue_id in range(4):
        await own.store([b"a%d" % queue_id] * 5, queue_id)
    one, two = Collector(), Collector()
    async with (
        broadcaster(own, tmp_path, one, "one"),
        broadcaster(own, tmp_path, two, "two"),
    ):
        await until(lambda: len(one.bodies) == len(two.bodies) == 20)
        description = await own.group(own.group_name)
        assert {member.client_id for member in description.members} == {"one", "two"}
        assert all(member.broadcasting for member in description.members)
    path = tmp_path / "one" / own.group_name / "offsets.json"
    offsets = decode_offsets(path.read_bytes()).offsets
    assert offsets == {own.queue(queue_id): 5 for queue_id in range(4)}
    assert await own.offsets() == {}
    await own.store([b"new"], 2)
    again = Collector()
    async with broadcaster(own, tmp_path, again, "one"):
        await until(lambda: again.bodies == [b"new"])


async def test_a_file_that_apaches_client_left_is_taken_up(own: OwnTopic, tmp_path: Path) -> None:
    await own.store([b"m%d" % number for number in range(6)])
    path = tmp_path / "host@DEFAULT" / own.group_name / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode_offsets(LocalOffsets({own.queue(): 4})))
    seen = Collector()
    async with broadcaster(own, tmp_path, seen):
        await until(lambda: seen.bodies == [b"m4", b"m5"])


async def test_a_damaged_file_ends_the_consumer_with_one_sentence(
    own: OwnTopic, tmp_path: Path
) -> None:
    path = tmp_path / "host@DEFAULT" / own.group_name / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{{{")
    with pytest.raises(errors.InvalidArgument, match="is damaged"):
        await broadcaster(own, tmp_path, Collector()).run()


async def test_two_live_processes_cannot_share_one_offset_file(
    own: OwnTopic, tmp_path: Path
) -> None:
    first = broadcaster(own, tmp_path, Collector())
    async with first:
        await until(lambda: len(first.statistics().queues) == 4)
        with pytest.raises(errors.DuplicateClient):
            await broadcaster(own, tmp_path, Collector()).run()


async def test_a_pull_consumer_can_broadcast_too(own: OwnTopic, tmp_path: Path) -> None:
    await own.store([b"x"] * 3, 1)
    consumer = own.pull(broadcasting=True, client_id="puller", offsets_folder=tmp_path)
    async with consumer:
        assert len(await consumer.poll(timeout=5)) == 3
        await consumer.commit()
    path = tmp_path / "puller" / own.group_name / "offsets.json"
    assert decode_offsets(path.read_bytes()).offsets[own.queue(1)] == 3
