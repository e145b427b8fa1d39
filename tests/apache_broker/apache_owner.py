"""Apache RocketMQ 5.3.3 on a store folder: name server, broker and proxy, and its remoting client.

The client's program is told, line by line,

    {"do": "consume", "group": G, "topic": T, "tags": E, "fails": [BODY]}
    {"do": "leave", "group": G}
    {"do": "send", "topic": T, "body": B, "level": N}
    {"do": "check", "group": G, "topic": T}       a producer of group G that is asked

and answers {"done": true} or {"error": WORDS}. By itself it says {"message": ...} when a listener
was called, and {"checked": BODY} when it was asked how a transaction ended: as its body says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

from peers.rocketmq import RocketmqProcess, rocketmq_on
from tests.apache_broker.owners import Got, Sender, aborted, now_ms
from tests.apache_broker.programs import REMOTING

JAVA_FLAGS = ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC")
SETTINGS = """\
mappedFileSizeCommitLog=67108864
maxHashSlotNum=250000
maxIndexNum=1000000
transactionCheckInterval=12000
flushConsumerOffsetInterval=500
diskMaxUsedSpaceRatio=99
"""
"""The file sizes of `aerobee up`, and less waiting. It notes every 3 s which transactions have
ended: if it checked more often, it would check those again."""
STOP_S = 120


class ApacheOwner:
    """See `Owner`."""

    name = "apache"

    def __init__(self, store: Path, home: Path) -> None:
        self._store, self._home = store, home
        self.address = ""
        self.got: list[Got] = []
        self.checked: list[str] = []
        self._stack = contextlib.AsyncExitStack()
        self._running: RocketmqProcess | None = None
        self._client: asyncio.subprocess.Process | None = None
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._asking = asyncio.Lock()
        self._life = 0

    async def start(self) -> None:
        self._life += 1
        folder = self._home / f"apache-{self._life}"
        folder.mkdir()
        self._stack = contextlib.AsyncExitStack()
        self._running = await self._stack.enter_async_context(
            rocketmq_on(self._store, folder, java_flags=JAVA_FLAGS, settings=SETTINGS)
        )
        self.address = self._running.address
        async with Sender(self.address) as sender:
            await sender.until_routed("plain")
        with (folder / "client.log").open("w") as log:
            self._client = await asyncio.create_subprocess_exec(
                *REMOTING.command_line(self._running.nameserver),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={"JAVA_TOOL_OPTIONS": f"-Duser.home={folder}", "PATH": "/usr/bin:/bin"},
                limit=1 << 24,
            )
        self._reader = asyncio.create_task(self._read(), name="remoting")

    async def _read(self) -> None:
        assert self._client is not None
        assert self._client.stdout is not None
        while line := await self._client.stdout.readline():
            said = json.loads(line)
            if message := said.get("message"):
                self.got.append(
                    Got(
                        self.name,
                        message["group"],
                        message["topic"],
                        message["body"],
                        message["failures"],
                        now_ms(),
                        message.get("tag"),
                        message["properties"],
                    )
                )
            elif checked := said.get("checked"):
                self.checked.append(checked)
            else:
                self._answers.put_nowait(said)

    async def _ask(self, do: str, **asked: Any) -> None:
        assert self._client is not None
        assert self._client.stdin is not None
        async with self._asking, asyncio.timeout(60):
            self._client.stdin.write(json.dumps({"do": do, **asked}).encode() + b"\n")
            answer = await self._answers.get()
        assert answer == {"done": True}, (do, asked, answer)

    async def stop(self) -> None:
        await self._end_client()
        assert self._running is not None
        process = self._running.process
        process.terminate()
        async with asyncio.timeout(STOP_S):
            await process.wait()
        await self._stack.aclose()
        assert not aborted(self._store)

    async def kill(self) -> None:
        assert self._running is not None
        self._running.process.kill()
        await self._running.process.wait()
        await self._end_client()
        await self._stack.aclose()

    async def close(self) -> None:
        """However it went."""
        await self._end_client()
        await self._stack.aclose()

    async def _end_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.kill()
            await client.wait()
            await self._reader

    async def consume(
        self, group: str, topic: str, tags: str = "*", fails: frozenset[str] = frozenset()
    ) -> None:
        await self._ask("consume", group=group, topic=topic, tags=tags, fails=sorted(fails))

    async def leave(self, group: str) -> None:
        await self._ask("leave", group=group)

    async def send_level(self, topic: str, body: str, level: int) -> None:
        await self._ask("send", topic=topic, body=body, level=level)

    async def check_transactions(self, topic: str) -> None:
        # The producer group of RocketMQ 5's gRPC API is the topic.
        await self._ask("check", group=topic, topic=topic)

    async def dead_letters(self, group: str, wanted: set[str]) -> set[str]:
        await self.consume("undertakers", f"%DLQ%{group}")
        found: set[str] = set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                while not wanted <= found:
                    found = {got.body for got in self.got if got.group == "undertakers"}
                    await asyncio.sleep(0.1)
        await self.leave("undertakers")
        self.got = [got for got in self.got if got.group != "undertakers"]
        return found

    async def settled(self) -> None:
        """Its tables are written every half second, the timer's progress each second; delays'
        every ten."""
        await asyncio.sleep(12)
