"""A master is killed while official clients send: what was answered OK is there, in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2 as v2
from tests.support.grpcio_client import build_channel
from tests.support.local_up import Up, running
from tests.support.v2_calls import V2, sent_message
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
GROUPS = ("g0", "g1", "g2")
BEFORE = 20
"""Messages of each group before the master is killed."""


def master_of(up: Up) -> int:
    """The id of its process."""
    (group,) = up.json("cluster", "show")["groups"]
    (pid,) = (b["pid"] for b in up.document()["brokers"] if b["id"] == group["masterId"])
    return int(pid)


async def send_all(address: str, group: str, count: int, killed: asyncio.Event) -> int:
    """Each message until it is answered OK, as an application would; returns how many tries a
    killed master cost. Sets `killed` once it is in the middle."""
    failures = 0
    async with build_channel(address) as channel:
        client = V2(channel, {"x-mq-client-id": group})
        for number in range(count):
            message = sent_message(
                "fifo", f"{group}:{number}".encode(), f"{group}-{number}", message_group=group
            )
            while True:
                try:
                    if (await client.send(message)).status.code == v2.OK:
                        break
                except grpc.aio.AioRpcError:
                    pass
                failures += 1
                await asyncio.sleep(0.1)
            if number == BEFORE:
                killed.set()
    return failures


@pytest.mark.thorough
async def test_what_was_answered_is_there_and_in_order(tmp_path: Path) -> None:
    with running(tmp_path, "--replicas", "2") as up:
        up.run("topic", "create", "fifo", "--queues", "4", "--attribute", "message.type=FIFO")
        wait_until(lambda: up.knows("fifo"), "the topic")
        address, master = up.document()["nameserver"], master_of(up)
        half = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            senders = [
                tasks.create_task(send_all(address, group, 3 * BEFORE, half)) for group in GROUPS
            ]
            await half.wait()
            os.kill(master, signal.SIGKILL)
        assert all(sender.result() < 100 for sender in senders)
        done = await asyncio.to_thread(
            up.run, "consume", "fifo", "--group", "g", "--idle-timeout", "5", "--format", "json"
        )
        seen: dict[str, list[int]] = {group: [] for group in GROUPS}
        for line in done.stdout.splitlines():
            message = json.loads(line)
            group, _, text = message["body"].partition(":")
            number = int(text)
            if number not in seen[group]:
                seen[group].append(number)
        assert seen == {group: list(range(3 * BEFORE)) for group in GROUPS}
