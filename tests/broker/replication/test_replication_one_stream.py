"""Who copies the log as a replica: one stream at a time, and one of its registered process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aerobee.broker.edge.replicas.replication_client import connect_to_master
from aerobee.broker.replication.joining import Sender
from aerobee.broker.replication.messages import Ack, Hello
from aerobee.runtime.errors import DuplicateBroker
from tests.support.replication_streams import (
    CLUSTER,
    GROUP,
    MIB,
    Master,
    Slave,
    running_master,
    running_slave,
)
from tests.support.stores import batch_of
from tests.support.waiting import until


def fill(master: Master) -> None:
    for _ in range(20):
        master.append(batch_of("t", b"x" * 100))


async def catch_up(slave: Slave, master: Master) -> None:
    await until(lambda: slave.store.appended_end == master.store.appended_end)


async def test_the_stream_of_a_later_process_of_a_replica_ends_that_of_the_earlier_one(
    tmp_path: Path,
) -> None:
    """At once, as when the machine of the earlier one has vanished and its connection has not."""
    async with (
        running_master(tmp_path / "m") as master,
        running_slave(tmp_path / "s", instance="i1") as one,
        running_slave(tmp_path / "z", instance="i2") as other,
    ):
        fill(master)
        first = one.follow(master.address)
        await catch_up(one, master)
        master.roles.instances[1] = "i2"
        other.follow(master.address)
        await catch_up(other, master)
        with pytest.raises(DuplicateBroker, match="another process is registered as replica 1"):
            await first
        # It joins with its first report, not with the last byte it got.
        await until(lambda: len(master.roles.events) == 3)
        assert [event for event, _ in master.roles.events] == ["joined", "left", "joined"]
        assert master.sender.connected == [1]


async def test_a_second_stream_of_a_process_does_not_end_the_first_while_that_one_lives(
    tmp_path: Path,
) -> None:
    """Whoever knows a slave's id, incarnation and instance cannot take its place."""
    async with (
        running_master(tmp_path / "m", heartbeat_interval_s=0.1) as master,
        running_slave(tmp_path / "s") as one,
        running_slave(tmp_path / "z") as thief,
    ):
        fill(master)
        following = one.follow(master.address)
        await catch_up(one, master)
        with pytest.raises(DuplicateBroker, match="over another stream"):
            await thief.follow(master.address)
        assert not following.done()
        assert thief.store.appended_end == 0
        fill(master)
        await catch_up(one, master)
        assert [event for event, _ in master.roles.events] == ["joined"]


async def test_a_stream_whose_connection_broke_unheard_gives_way_to_the_next_one_of_its_process(
    tmp_path: Path,
) -> None:
    async with (
        running_master(tmp_path / "m") as master,
        running_slave(tmp_path / "s") as slave,
    ):
        fill(master)
        async with connect_to_master(master.address) as half_open:
            hello = Hello(slave.log_state(), slave.name, "instance", window_bytes=MIB, tables={})
            sender = Sender(CLUSTER, GROUP, 1)
            await half_open.write(sender, hello)
            assert await half_open.read() is not None
            await half_open.write(sender, Ack(0, 0))  # and nothing more
            await until(lambda: master.sender.connected == [1])
            async with asyncio.timeout(10):
                while "joined" not in [event for event, _ in master.roles.events[1:]]:
                    following = slave.follow(master.address)  # as a replica does, again and again
                    await asyncio.wait((following,), timeout=2)
            await catch_up(slave, master)
        assert [event for event, _ in master.roles.events] == ["joined", "left", "joined"]


async def test_a_process_that_is_not_registered_is_given_nothing(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        fill(master)
        master.roles.instances[1] = "another"
        with pytest.raises(DuplicateBroker):
            await slave.follow(master.address)
        assert slave.store.appended_end == 0
        assert master.roles.events == []


async def test_a_process_that_its_master_has_not_heard_of_yet_need_not_come_again(
    tmp_path: Path,
) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        fill(master)
        master.roles.instances[1] = "earlier"
        slave.follow(master.address)
        await asyncio.sleep(0.05)
        master.roles.instances[1] = "instance"
        await catch_up(slave, master)
