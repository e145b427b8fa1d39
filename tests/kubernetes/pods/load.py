"""Runs in the pod of tools: the producers, consumers and observer of tests/failover, by the names
of the cluster. What they are to do comes as lines of JSON, and what they saw goes back as such.

python3 -m tests.kubernetes.pods.load NAMESERVER REPLICAS
"""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import random
import sys
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

from aerobee.runtime.log import configure_logging
from tests.failover.clients import Clients, open_clients
from tests.failover.history import Place
from tests.kubernetes.pods.group import PodGroup

NAMESPACE = "aerobee"
GROUP = "aerobee-broker-a"
PACE_S = 0.03
LINE_BYTES_MAX = 1 << 28


async def main() -> None:
    configure_logging()
    nameserver, replicas = sys.argv[1], range(int(sys.argv[2]))
    group = PodGroup(
        lambda: [nameserver],
        lambda broker_id: f"{GROUP}-{broker_id}.{GROUP}.{NAMESPACE}.svc:10911",
        replicas,
    )
    await group.create_topic()
    reader = asyncio.StreamReader(LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    async with open_clients(group, random.Random(1), pace_s=PACE_S) as clients:
        _answer("open")
        while line := await reader.readline():
            name, *arguments = json.loads(line)
            try:
                _answer(await _do(clients, name, arguments))
            except AssertionError as error:
                _answer({"error": str(error)})
    await group.close()


async def _do(clients: Clients, name: str, arguments: list[Any]) -> Any:
    match name:
        case "resume":
            return clients.resume()
        case "pause":
            await clients.pause()
            return await clients.nothing_waits()
        case "acknowledged_after":
            return await clients.acknowledged_after(*arguments)
        case "gap_s":
            return clients.history.gap_s(*arguments)
        case "caught_up":
            return await clients.caught_up({Place(*place) for place in arguments[0]})
        case "account":
            return f"{clients.account()}\n{_tasks()}"
        case "history":
            return base64.b64encode(pickle.dumps(clients.history)).decode()
    raise ValueError(name)


def _tasks() -> str:
    """Where all tasks stand, as many as stand at the same place in one line."""
    stacks = Counter(
        " < ".join(f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in _frames(task))
        for task in asyncio.all_tasks()
    )
    return "\n".join(f"{count} tasks: {stack}" for stack, count in stacks.most_common())


def _frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """From the innermost outwards: of each coroutine that waits for the next one."""
    waiting: Any = task.get_coro()
    found: list[FrameType] = []
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None)
        if frame is not None:
            found.append(frame)
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
    return reversed(found)


def _answer(value: Any) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
