"""`aerobee up` on a store folder, and Aerobee's own clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from aerobee.consumer_client import (
    ConsumerConfig,
    ConsumeResult,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from aerobee.producer_client import Message, Producer
from tests.apache_broker.owners import Got, Sender, aborted, now_ms
from tests.support.local_up import Up

STORE = Path("data/brokers/broker-a")
"""Below the folder of `aerobee up`."""


class OwnOwner:
    """See `Owner`. The folder's topics are created at each start."""

    name = "aerobee"

    def __init__(self, home: Path, types: Mapping[str, str], queues: int) -> None:
        self._home, self._types, self._queues = home, types, queues
        self._store = home / STORE
        self.address = ""
        self.got: list[Got] = []
        self.checked: list[str] = []
        self._up: Up | None = None
        self._members: dict[str, tuple[PushConsumer, asyncio.Task[None]]] = {}

    async def start(self) -> None:
        self._up = up = await asyncio.to_thread(Up, self._home)
        document = await asyncio.to_thread(up.wait_ready)
        self.address = document["nameserver"]
        for topic, kind in self._types.items():
            flags = ("--queues", str(self._queues), "--type", kind, "--if-missing")
            await asyncio.to_thread(up.run, "topic", "create", topic, *flags)
        async with Sender(self.address) as sender:
            for topic in self._types:
                await sender.until_routed(topic)

    async def stop(self) -> None:
        for group in list(self._members):
            await self.leave(group)
        assert self._up is not None
        up, self._up = self._up, None
        assert await asyncio.to_thread(up.end, signal.SIGTERM) == 0, up.said()
        up.output.close()
        assert not aborted(self._store)

    async def kill(self) -> None:
        assert self._up is not None
        up, self._up = self._up, None
        pids = up.document()["pids"]
        # The process above it would start it again.
        up.process.send_signal(signal.SIGSTOP)
        os.kill(pids["broker-a"], signal.SIGKILL)
        up.process.kill()
        up.process.wait()
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        up.output.close()
        up.ready_file.unlink(missing_ok=True)
        members, self._members = self._members, {}
        for _, task in members.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in members.values()), return_exceptions=True)

    async def close(self) -> None:
        """However it went."""
        if self._up is not None:
            await self.kill()

    async def consume(
        self, group: str, topic: str, tags: str = "*", fails: frozenset[str] = frozenset()
    ) -> None:
        def handle(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            (message,) = messages
            body = message.body.decode()
            self.got.append(
                Got(
                    self.name,
                    group,
                    message.topic,
                    body,
                    message.reconsume_times,
                    now_ms(),
                    message.tag,
                    dict(message.properties),
                )
            )
            return ConsumeResult.RETRY_LATER if body in fails else ConsumeResult.SUCCESS

        consumer = PushConsumer(
            group,
            handle,
            run_in_thread=False,
            nameservers=self.address,
            start_from=StartFrom.FIRST,
            config=ConsumerConfig(commit_interval_ms=200),
        ).subscribe(topic, tags)
        task = asyncio.create_task(consumer.run(), name=group)
        self._members[group] = consumer, task

    async def leave(self, group: str) -> None:
        consumer, task = self._members.pop(group)
        consumer.stop()
        await task

    async def send_level(self, topic: str, body: str, level: int) -> None:
        async with Producer(self.address) as producer:
            await producer.send(Message(topic, body.encode(), delay_level=level))

    async def check_transactions(self, topic: str) -> None:
        raise NotImplementedError("Aerobee does not check yet; the scene ends its transactions")

    async def configure(self, group: str, *rules: str) -> None:
        """As `aerobee group configure`; Apache's broker finds it in the folder."""
        assert self._up is not None
        await asyncio.to_thread(self._up.run, "group", "configure", group, *rules)

    async def dead_letters(self, group: str, wanted: set[str]) -> set[str]:
        assert self._up is not None
        command = ("dead-letter", "list", group, "--json")
        done = await asyncio.to_thread(self._up.run, *command, expect=(0, 1))
        letters = json.loads(done.stdout)["letters"]
        # The scene's ids are its bodies in capitals.
        return {letter["messageId"].lower() for letter in letters}

    async def settled(self) -> None:
        """Its journals have whatever was answered; Apache's broker reads `consumerOffset.json`,
        which is written every five seconds."""
        await asyncio.sleep(7)
