"""The message source over a broker group that loses its master: all messages, each once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from aerobee.offset_audit.sources.messages.batch_reader import BatchPlan
from aerobee.offset_audit.sources.messages.live_place import LivePlace
from aerobee.offset_audit.sources.store.conditions import Conditions
from tests.offset_audit.stream_engine import Engine, bodies, options_of, rows_of
from tests.support.etcd import running_etcd
from tests.support.replica_group import ReplicaGroup, replica_group

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a real etcd with short elections, so that leases may be short."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


@pytest_asyncio.fixture
async def group(etcd: str, tmp_path: Path) -> AsyncIterator[ReplicaGroup]:
    """Three replicas in sync, with topic `orders`."""
    async with replica_group(tmp_path, etcd) as found:
        await found.in_sync(0, 1, 2)
        await found.create_topic("orders", 1)
        yield found


async def send(group: ReplicaGroup, begin: int, end: int) -> list[str]:
    sent = [f"{number} " + "x" * 3_000 for number in range(begin, end)]
    for one in sent:
        await group.send_until_stored("orders", one.encode())
    return sent


async def test_a_stream_reads_on_while_the_master_is_killed_and_another_elected(
    group: ReplicaGroup,
) -> None:
    engine = Engine(
        group.nameserver, cluster=group.cluster, startingOffsets="earliest", timeoutMs=30_000
    )
    sent = await send(group, 0, 10)
    seen = bodies(await engine.step())
    sent += await send(group, 10, 20)
    await group.replicas[await group.master()].kill()
    # Nobody is master now; what is stored is read all the same, from a slave if need be.
    sending = asyncio.get_running_loop().create_task(send(group, 20, 40))
    while not sending.done() or len(set(seen)) < 40:
        seen += bodies(await engine.step())
        engine.restart()
        await asyncio.sleep(0.05)
    sent += await sending
    # Who sends again after a failure stores again; each stored message is read once.
    offsets = engine.log[-1]["orders"]["broker-a"]["0"]
    assert set(seen) == set(sent)
    assert len(seen) == offsets


async def test_a_batch_goes_on_at_another_replica_when_its_broker_is_killed(
    group: ReplicaGroup,
) -> None:
    sent = await send(group, 0, 60)
    options = options_of(
        group.nameserver,
        is_streaming=False,
        cluster=group.cluster,
        fetchBytes=8_192,
        timeoutMs=30_000,
    )
    (reading,) = await asyncio.to_thread(
        BatchPlan(options, Conditions()).readings, LivePlace(options)
    )
    batches = reading.batches()
    first = await asyncio.to_thread(next, batches)
    await group.replicas[await group.master()].kill()
    rest = await asyncio.to_thread(lambda: [row for one in batches for row in one.to_pylist()])
    assert 0 < first.num_rows < 60
    assert [row["body"].decode() for row in [*first.to_pylist(), *rest]] == sent
    assert bodies(await asyncio.to_thread(rows_of, [reading])) == sorted(sent)
