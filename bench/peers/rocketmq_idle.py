"""Apache RocketMQ and Aerobee with ten thousand idle clients, and a few sends beside them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from peers.fetching import needed_program
from peers.kafka import JDK
from peers.parts import V2_IDLE, V2_IDLE_WARM_UP
from peers.processes import Server, said_by
from peers.rocketmq import (
    LOAD,
    TITLE,
    RocketmqPrograms,
    running_own,
    running_rocketmq,
)
from peers.system import Stage
from peers.table import OURS

STAGES = (Stage(False, V2_IDLE_WARM_UP, V2_IDLE),)


class OwnIdle:
    """Our broker."""

    stages = STAGES
    title = OURS

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        async with running_own(folder) as (process_id, address):
            yield Server(process_id, (*LOAD, address, str(body_bytes)))


class IdleAtRocketmq:
    """Apache's proxy."""

    stages = STAGES
    title = TITLE
    programs = (RocketmqPrograms(),)

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        async with running_rocketmq(folder) as (process_id, address):
            yield Server(process_id, (*LOAD, address, str(body_bytes)), memory=live_bytes)


async def live_bytes(process_id: int) -> int:
    """The size of a JVM's heap after a collection; its pages would show only how large it may
    become. Memory of its network library outside the heap is not counted."""
    tool = needed_program("jcmd", JDK)
    said = await said_by((tool, str(process_id), "GC.class_histogram"), folder=Path("/"))
    return total_of(said)


def total_of(histogram: str) -> int:
    """The bytes of the last line of `jcmd PID GC.class_histogram`: Total, instances, bytes."""
    (total,) = (line for line in histogram.splitlines() if line.startswith("Total"))
    return int(total.split()[2])
