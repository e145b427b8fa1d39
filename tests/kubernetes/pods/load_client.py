"""Talks to load.py in the pod of tools: the same clients as in tests/failover, one pipe away.

Both sides read the same monotonic clock, since containers have the machine's.
"""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.failover.history import History, Place
from tests.kubernetes.pods.kubelet import Pod

LINE_BYTES_MAX = 1 << 28
ANSWER_TIMEOUT_S = 90.0
COMPLAINTS_MAX = 200
"""Lines of the clients' log that are kept."""
NAMESERVER = "aerobee-nameserver:8081"
CHECKOUT = "/checkout"
"""Where the pod of tools finds the tests."""
PYTHON = {"PYTHONPATH": CHECKOUT, "PYTHONDONTWRITEBYTECODE": "1"}


class Load:
    """Use `open_load`. Sends wait until `resume`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        assert process.stderr is not None
        self._complaints: deque[bytes] = deque(maxlen=COMPLAINTS_MAX)
        self._reading = asyncio.create_task(self._read_complaints(process.stderr))
        self._lock = asyncio.Lock()

    async def resume(self) -> None:
        await self._ask("resume")

    async def pause(self) -> None:
        """Returns when every send has ended, and what was to arrive later has arrived."""
        await self._ask("pause")

    async def acknowledged_after(self, moment_s: float) -> float:
        """Until a message sent after `moment_s` is acknowledged; how long writes stood still."""
        return float(await self._ask("acknowledged_after", moment_s))

    async def gap_s(self, begin_s: float) -> float:
        """The longest time since `begin_s` without an acknowledgement, up to the first one of a
        message that is sent from now on."""
        await self.acknowledged_after(time.monotonic())
        return float(await self._ask("gap_s", begin_s, time.monotonic()))

    async def caught_up(self, places: set[Place]) -> None:
        """Until consumers were given all of these, and their offsets are committed."""
        await self._ask("caught_up", [(one.queue_id, one.offset) for one in places])

    async def history(self) -> History:
        found = pickle.loads(base64.b64decode(await self._ask("history")))
        assert isinstance(found, History)
        return found

    async def account(self) -> str:
        """How the clients stand, and what they logged; for a person who looks for the cause."""
        try:
            told = str(await self._ask("account"))
        except (AssertionError, OSError, TimeoutError) as error:
            told = f"they do not tell: {error!r}"
        return f"--- clients\n{told}\n{self._complained()}"

    async def opened(self) -> None:
        await self._answer("the start")

    async def close(self) -> None:
        """Of the pipe; what runs in the pod ends with the pod."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def _ask(self, name: str, *arguments: Any) -> Any:
        async with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
            return await self._answer(name)

    async def _answer(self, name: str) -> Any:
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            line = await self._process.stdout.readline()
        complaints = self._complained()
        assert line, f"the clients ended at {name}: {complaints}"
        answer = json.loads(line)
        assert not (isinstance(answer, dict) and "error" in answer), (
            f"{answer['error']}\n{complaints}"
        )
        return answer

    def _complained(self) -> str:
        return b"".join(self._complaints).decode(errors="replace")

    async def _read_complaints(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self._complaints.append(line)


@asynccontextmanager
async def open_load(tools: Pod, replicas: int) -> AsyncIterator[Load]:
    process = await tools.spawn(
        *("python3", "-m", "tests.kubernetes.pods.load", NAMESERVER, str(replicas)),
        environment=PYTHON,
        bytes_max=LINE_BYTES_MAX,
    )
    load = Load(process)
    try:
        await load.opened()
        yield load
    finally:
        await load.close()
