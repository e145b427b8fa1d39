"""`aerobee cluster clean`, and what `show` says of what was removed, as separate processes."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from aerobee.client_core import ClusterConnection, MessageQueue, Offsets
from aerobee.cluster_view.methods import SEND
from aerobee.v1 import broker_pb2
from tests.support.fake_cluster import BrokerAt, FakeNameserver, FakeTopic
from tests.support.real_brokers import RealBroker
from tests.support.retention import RESERVED_MS, write_times

pytestmark = pytest.mark.slow

STORE = {"segment_bytes": 4096, "checkpoint_interval_ms": 50, "flush_interval_ms": 20}
QUEUE = MessageQueue("orders", "broker-a", 0)


class Cluster:
    """One broker behind a nameserver, and the command line."""

    def __init__(self, nameserver: FakeNameserver, broker: RealBroker) -> None:
        self.nameserver = nameserver
        self.broker = broker

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aerobee.cli", *arguments),
            *("--nameserver", self.nameserver.address),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, remarked = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode(), remarked.decode()

    async def fill(self, messages: int) -> None:
        """Expired messages, of which group `billing` has read two."""
        async with ClusterConnection(self.nameserver.address) as connection:
            for _ in range(messages):
                await connection.channels.call(
                    self.broker.address,
                    SEND,
                    broker_pb2.SendRequest(topic="orders", queue_id=0, body=b"x" * 600),
                )
            await Offsets(connection).reset("billing", {QUEUE: 2})
        await asyncio.sleep(0.6)
        write_times(self.broker.folder, int(time.time() * 1_000) - RESERVED_MS - 1_000)


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    broker = await RealBroker(
        "broker-a", tmp_path / "broker-a", {"orders": 1}, store_options=STORE
    ).start()
    nameserver = await FakeNameserver(
        brokers={"broker-a": BrokerAt(broker.address)},
        topics={"orders": FakeTopic({"broker-a": 1})},
    ).start()
    yield Cluster(nameserver, broker)
    await nameserver.stop()
    await broker.stop()


async def test_cleaning_keeps_what_a_group_has_not_read_unless_it_is_told_otherwise(
    cluster: Cluster,
) -> None:
    await cluster.fill(23)
    code, said, remarked = await cluster.command("cluster", "clean", "broker-a")
    assert (code, said) == (0, "broker-a: removed 0 segments (0.0 MiB); the log begins at 0\n")
    assert "the rest is kept: group billing has not read topic orders" in remarked
    code, _, remarked = await cluster.command("cluster", "clean", "broker-a", "--unread")
    assert code == 2
    assert "--yes" in remarked
    address = cluster.broker.address
    code, said, _ = await cluster.command(
        "cluster", "clean", address, "--unread", "--yes", "--json"
    )
    assert code == 0
    done = json.loads(said)
    assert done["removedSegments"] == 4
    (lost,) = done["removedUnread"]
    assert (lost["group"], lost["topic"], lost["queueId"]) == ("billing", "orders", 0)
    _, said, remarked = await cluster.command("cluster", "show")
    assert " % " in said
    assert f"removed before they were read: {lost['messages']} messages of group" in remarked
    assert "billing" in remarked
    _, said, _ = await cluster.command("group", "show", "billing")
    assert "removed unread" in said
    assert said.splitlines()[-1].split() == ["orders", "broker-a", "0", lost["messages"]]
    _, said, _ = await cluster.command("group", "show", "billing", "--json")
    assert json.loads(said)["removedUnread"] == [
        {"topic": "orders", "broker": "broker-a", "queue": 0, "messages": int(lost["messages"])}
    ]


async def test_a_broker_that_is_not_there_is_answered_with_those_that_are(
    cluster: Cluster,
) -> None:
    code, _, remarked = await cluster.command("cluster", "clean", "broker-b")
    assert code == 2
    assert "no broker is named broker-b; registered are: broker-a" in remarked
