"""Clients of RocketMQ's remoting protocol that only wait, at Apache's broker and at ours.

`remoting_idle NAMESERVER` is their load: it reads one part a line from standard input, as JSON, and
answers each with one line. Each client has what a push consumer keeps open: a connection, a
heart-beat every 30 s, and a pull that waits for messages, and is sent again when its time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import uvloop

from aerobee.remoting_core.client import RemotingClient
from aerobee.remoting_core.command import Command
from aerobee.runtime.machine import raise_limit
from peers.idle_clients import CONNECTING, GROUP_CLIENTS, POLL_S, QUEUES, WAIT_S
from peers.parts import REMOTING_IDLE, Answer, Part, Way
from peers.processes import Server
from peers.rocketmq import (
    JAVA_FLAGS,
    TITLE,
    RocketmqPrograms,
    rocketmq_on,
    running_own,
    write_rocketmq_topics,
)
from peers.rocketmq_idle import live_bytes
from peers.system import Stage
from peers.table import OURS
from peers.v2_load import IDLE_TOPIC, until_routed

STAGES = (Stage(False, (), REMOTING_IDLE),)
LOAD = (sys.executable, "-m", "peers.remoting_idle")
HEART_BEAT_S = 30.0
_ROUTE, _HEART_BEAT, _PULL = 105, 34, 11
_WAITS_AND_NAMES_TAGS = 2 | 4
_ADDRESS = re.compile(rb'"(127\.0\.0\.1):(\d+)"')


class OwnRemotingIdle:
    """Our broker, which serves remoting beside gRPC."""

    stages = STAGES
    title = OURS

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        async with running_own(folder) as (process_id, address):
            yield Server(process_id, (*LOAD, address))


class IdleAtRocketmqByRemoting:
    """Apache's broker, beside its proxy in one process, which has nothing to do."""

    stages = STAGES
    title = TITLE
    programs = (RocketmqPrograms(),)

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        write_rocketmq_topics(folder / "data")
        async with rocketmq_on(folder / "data", folder, java_flags=JAVA_FLAGS) as running:
            await until_routed(running.address)
            load = (*LOAD, await broker_address(running.nameserver))
            yield Server(running.process.pid, load, memory=live_bytes)


async def broker_address(nameserver: str) -> str:
    """Of the broker that has the topic of idle clients.

    Raises:
        RuntimeError: the nameserver does not name it.
    """
    async with await connected(nameserver) as client:
        answer = await client.ask(Command(_ROUTE, {"topic": IDLE_TOPIC}))
    found = _ADDRESS.search(answer.body)
    if found is None:
        raise RuntimeError(f"no route to topic {IDLE_TOPIC}: {answer}")
    return b":".join(found.groups()).decode()


async def connected(address: str) -> RemotingClient:
    """Raises OSError."""
    host, port = address.rsplit(":", 1)
    return await RemotingClient.connect(host, int(port), now=time.monotonic)


def heart_beat(number: int) -> Command:
    """Of a push consumer."""
    consumer = {
        "groupName": group_of(number),
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "unitMode": False,
        "subscriptionDataSet": [
            {"topic": IDLE_TOPIC, "subString": "*", "expressionType": "TAG", "subVersion": 1}
        ],
    }
    body = {
        "clientID": f"192.0.2.1@{number}",
        "producerDataSet": [],
        "consumerDataSet": [consumer],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
    }
    return Command(_HEART_BEAT, {}, json.dumps(body).encode(), language="JAVA")


def pull(number: int) -> Command:
    """For the end of one queue."""
    fields = {
        "consumerGroup": group_of(number),
        "topic": IDLE_TOPIC,
        "queueId": str(number % QUEUES),
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": str(_WAITS_AND_NAMES_TAGS),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(POLL_S * 1_000),
        "subscription": "*",
        "subVersion": "1",
        "expressionType": "TAG",
    }
    return Command(_PULL, fields, language="JAVA")


def group_of(number: int) -> str:
    """Clients of a group share its queues."""
    return f"idle-{number // GROUP_CLIENTS}"


class IdleClients:
    """All of them, in this process, until it ends."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lives: list[asyncio.Task[None]] = []

    async def come(self, count: int) -> None:
        """Connect so many; returns once all of them wait.

        Raises:
            OSError, TimeoutError: one could not.
        """
        numbers = itertools.islice(itertools.count(len(self._lives)), count)

        async def some() -> None:
            for number in numbers:
                client = await connected(self._address)
                await client.ask(heart_beat(number), timeout_s=WAIT_S)
                life = self._live(client, number)
                self._lives.append(asyncio.create_task(life, name=f"client-{number}"))

        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*(some() for _ in range(CONNECTING)))
        await asyncio.sleep(1.0)  # until the last pulls wait

    async def _live(self, client: RemotingClient, number: int) -> None:
        async def beat() -> None:
            while True:
                await asyncio.sleep(HEART_BEAT_S)
                await client.ask(heart_beat(number), timeout_s=WAIT_S)

        async with asyncio.TaskGroup() as group:
            group.create_task(beat(), name=f"heart-beats-{number}")
            while True:
                await client.ask(pull(number), timeout_s=WAIT_S)

    def check(self) -> None:
        """Raises what has ended one."""
        for life in self._lives:
            if life.done():
                life.result()


async def serve(address: str) -> None:
    """Until standard input ends."""
    raise_limit()
    clients = IdleClients(address)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        part = Part.from_json(line)
        began_s = time.perf_counter()
        match part.way:
            case Way.GATHER:
                await clients.come(part.clients)
                answer = Answer(0, time.perf_counter() - began_s, part.clients, 0.0, 0.0)
            case Way.IDLE:
                await asyncio.sleep(part.seconds)
                answer = Answer(0, part.seconds, 1, 0.0, 0.0)
            case _:
                raise ValueError(f"idle clients do not {part.way}")
        clients.check()
        print(json.dumps(asdict(answer)), flush=True)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
