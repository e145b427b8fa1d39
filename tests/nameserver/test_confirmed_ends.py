"""What was confirmed is not lost by a clean election, whatever the in-sync set says: through real
nameservers and a real etcd."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aerobee.nameserver import elector
from aerobee.v1 import nameserver_pb2 as pb
from tests.nameserver.test_elections import group_in, set_in_sync, two_in_sync
from tests.support.waiting import until


async def in_sync_but_short(server: Any, make_replica: Any, **settings: Any) -> tuple[Any, Any]:
    """A master that says that 400 bytes are confirmed, for somebody acknowledged them as its slave;
    and the true slave, whose log is empty."""
    master, slave = await two_in_sync(server, make_replica, **settings)
    await master.beat(log_epoch=1, log_end=400, confirmed_end=400)
    await slave.beat(log_epoch=1, log_end=0)
    return master, slave


async def until_gone(server: Any, broker_id: int) -> None:
    """Until routes do not show that replica any more."""

    async def is_gone() -> bool:
        cluster = await server.stub.DescribeCluster(pb.DescribeClusterRequest())
        return all(one.identity.broker_id != broker_id for one in cluster.brokers)

    await until(is_gone)


async def until_logged(caplog: Any, text: str) -> None:
    async def is_logged() -> bool:
        return any(text in record.getMessage() for record in caplog.records)

    await until(is_logged)


async def test_a_replica_in_sync_that_lacks_what_was_confirmed_waits_for_the_one_that_has_it(
    shared_etcd: Any,
    start_nameserver: Any,
    make_replica: Any,
    etcd: Any,
    cluster: str,
    caplog: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elector, "HEARD_PAUSE_S", 0.3)
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await in_sync_but_short(server, make_replica)
    master.kill()
    await until_gone(server, 0)
    await slave.beat()
    with caplog.at_level(logging.ERROR):
        await until_logged(caplog, "lack messages that were acknowledged")
    assert (await group_in(etcd, cluster)).epoch == 1, "nobody was elected"
    back = master.restarted("m2", log_epoch=1, log_end=400)
    await back.connect(server)
    await back.until_master(epoch=2)
    assert (await group_in(etcd, cluster)).unclean_epochs == ()


async def test_an_honest_slave_whose_last_heartbeat_was_too_old_is_elected_with_its_next_one(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Any, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await in_sync_but_short(server, make_replica)
    master.kill()
    await until_gone(server, 0)
    assert (await group_in(etcd, cluster)).epoch == 1
    answer = await slave.beat(log_end=400)
    assert answer.epoch == 2, "its heartbeat holds the election"
    assert (await group_in(etcd, cluster)).unclean_epochs == ()


async def test_a_successor_is_elected_once_it_says_that_it_has_everything(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Any, cluster: str
) -> None:
    """As with each hand-over: the master knows more of its slave than the nameserver."""
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await in_sync_but_short(server, make_replica, lease_ms=30_000)
    await master.beat(resigned_epoch=1, successor_id=1)
    await slave.beat(log_end=400)
    await slave.until_master(epoch=2)
    assert (await group_in(etcd, cluster)).unclean_epochs == ()


async def test_another_nameserver_knows_from_etcd_what_was_confirmed(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Any, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await in_sync_but_short(server, make_replica)
    await master.beat(durable_end=400)
    await master.leave()
    await server.stop()
    other = await start_nameserver(shared_etcd.endpoint)
    await slave.connect(other)
    await until_gone(other, 0)
    assert (await slave.beat()).epoch == 1
    assert (await slave.beat(log_end=400)).epoch == 2
    assert (await group_in(etcd, cluster)).unclean_epochs == ()


async def test_where_it_is_allowed_the_loss_is_recorded_and_logged(
    shared_etcd: Any,
    start_nameserver: Any,
    make_replica: Any,
    etcd: Any,
    cluster: str,
    caplog: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elector, "HEARD_PAUSE_S", 0.3)
    server = await start_nameserver(shared_etcd.endpoint, unclean_election=True)
    master, slave = await in_sync_but_short(server, make_replica)
    master.kill()
    with caplog.at_level(logging.ERROR):
        await slave.until_master(epoch=2)
    assert (await group_in(etcd, cluster)).unclean_epochs == (2,)
    assert any("unclean election" in one.getMessage() for one in caplog.records)


async def test_nobody_is_passed_over_who_is_silent_and_registered(
    shared_etcd: Any,
    start_nameserver: Any,
    make_replica: Any,
    etcd: Any,
    cluster: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long registration has rare heartbeats: what it lacks is known from the last one."""
    monkeypatch.setattr(elector, "HEARD_PAUSE_S", 0.1)
    server = await start_nameserver(shared_etcd.endpoint, unclean_election=True)
    master, slave = await in_sync_but_short(server, make_replica, lease_ms=30_000)
    await master.leave()
    await until_gone(server, 0)
    await asyncio.sleep(5 * elector.LOOK_INTERVAL_S / 2)  # the elector looks twice
    assert (await slave.beat(log_end=400)).epoch == 2
    assert (await group_in(etcd, cluster)).unclean_epochs == ()


async def test_what_a_stranger_says_to_be_confirmed_stops_no_election(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await two_in_sync(server, make_replica)
    await slave.beat(log_epoch=1, log_end=400, confirmed_end=10**9)
    master.kill()
    await slave.until_master(epoch=2)


@pytest.mark.thorough
async def test_what_an_unclean_election_has_cut_stops_no_later_election(
    shared_etcd: Any,
    start_nameserver: Any,
    make_replica: Any,
    etcd: Any,
    cluster: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elector, "HEARD_PAUSE_S", 0.3)
    server = await start_nameserver(shared_etcd.endpoint, unclean_election=True)
    master, slave = await in_sync_but_short(server, make_replica)
    master.kill()
    await slave.until_master(epoch=2)
    # It cuts what the new master lacks, and is in sync again under another incarnation.
    back = master.restarted("m2", incarnation="log-0-cut", log_epoch=2, log_end=10)
    await back.connect(server)
    back.keep_beating()
    await set_in_sync(server, slave.last.group, slave, back)
    await slave.beat(log_epoch=2, log_end=10, confirmed_end=10)
    slave.kill()
    await back.until_master(epoch=3)
    assert (await group_in(etcd, cluster)).unclean_epochs == (2,)
