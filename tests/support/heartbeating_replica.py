"""A replica of a broker group as seen by a nameserver: heartbeats over a real stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.waiting import PATIENCE_S


@dataclass
class HeartbeatingReplica:
    """One start of one replica; set the content of the next heartbeat, then call `beat`."""

    cluster: str
    broker_id: int
    instance: str
    name: str = "broker-a"
    incarnation: str = ""
    predecessor: str = ""
    address: str = ""
    lease_ms: int = 1_000
    log_epoch: int = 0
    log_end: int = 0
    confirmed_end: int = 0
    """The confirmed end that it reports as master of the last epoch it was told."""
    durable_end: int = 0
    opened_end: int | None = None
    """None: a broker from before this field existed."""
    resigned_epoch: int = 0
    successor_id: int | None = None
    sequence: int = 0
    directives: list[pb.BrokerDirective] = field(default_factory=list)
    starts: list[HeartbeatingReplica] = field(default_factory=list)
    """Every start of this replica, including this one."""
    call: Any = None
    _reader: asyncio.Task[None] | None = None
    _beating: asyncio.Task[None] | None = None
    _heard: asyncio.Event = field(default_factory=asyncio.Event)
    _one_write: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Two concurrent writes on a stream are a gRPC error, TOO_MANY_OPERATIONS, that ends it."""

    def __post_init__(self) -> None:
        self.starts.append(self)
        self.incarnation = self.incarnation or f"log-{self.broker_id}"
        self.address = self.address or f"127.0.0.1:{20_000 + self.broker_id}"

    def restarted(self, instance: str, **changes: Any) -> HeartbeatingReplica:
        """The next start in the same folder, which proves that this one has ended."""
        settings: dict[str, Any] = {
            "incarnation": self.incarnation,
            "predecessor": self.instance,
            "address": self.address,
            "lease_ms": self.lease_ms,
            "log_epoch": self.log_epoch,
            "log_end": self.log_end,
            "starts": self.starts,
        }
        return HeartbeatingReplica(
            self.cluster, self.broker_id, instance, self.name, **(settings | changes)
        )

    @property
    def last(self) -> pb.BrokerDirective:
        return self.directives[-1]

    @property
    def is_master(self) -> bool:
        return bool(self.directives) and self.last.role == common_pb2.MASTER

    def heartbeat(self, *, leaving: bool = False) -> pb.BrokerHeartbeat:
        heartbeat = pb.BrokerHeartbeat(
            identity=common_pb2.BrokerIdentity(
                cluster=self.cluster,
                broker_name=self.name,
                broker_id=self.broker_id,
                instance=self.instance,
            ),
            address=self.address,
            lease_duration_ms=self.lease_ms,
            writable=True,
            sequence=self.sequence,
            incarnation=self.incarnation,
            predecessor=self.predecessor,
            log_epoch=self.log_epoch,
            log_end=self.log_end,
            epoch=self.last.epoch if self.directives else 0,
            confirmed_end=self.confirmed_end,
            durable_end=self.durable_end,
            opened_end=self.opened_end,
            resigned_epoch=self.resigned_epoch,
            leaving=leaving,
        )
        if self.successor_id is not None:
            heartbeat.successor_id = self.successor_id
        return heartbeat

    async def connect(self, server: Any) -> pb.BrokerDirective:
        """A new stream to this nameserver; returns the answer to its first heartbeat."""
        self.kill()
        self.call = server.stub.Register()
        self._reader = asyncio.create_task(self._follow(self.call))
        return await self.beat()

    async def beat(self, **changes: Any) -> pb.BrokerDirective:
        """One heartbeat; returns the first directive that answers it."""
        for name, value in changes.items():
            setattr(self, name, value)
        self.sequence += 1
        sequence, before = self.sequence, len(self.directives)
        # A reader of an ended stream gets the reason.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._write(self.heartbeat())

        def answers() -> list[pb.BrokerDirective]:
            later = self.directives[before:]
            return [one for one in later if one.renewed_sequence >= sequence or one.stale]

        await self.until(lambda: bool(answers()))
        return answers()[0]

    def keep_beating(self, interval_s: float = 0.25) -> None:
        """Heartbeats in the background, until `kill` or `leave`."""

        async def send() -> None:
            while True:
                await asyncio.sleep(interval_s)
                self.sequence += 1
                await self._write(self.heartbeat())

        self._beating = asyncio.create_task(send())

    async def leave(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        await self._write(self.heartbeat(leaving=True))
        assert self._reader is not None
        await self._reader  # the nameserver ends the stream

    def kill(self) -> None:
        """The stream breaks without a word: a death or a lost connection."""
        for task in (self._beating, self._reader):
            if task is not None:
                task.cancel()
        if self.call is not None:
            self.call.cancel()
        self._beating = self._reader = None

    async def _write(self, heartbeat: pb.BrokerHeartbeat) -> None:
        async with self._one_write:
            await self.call.write(heartbeat)

    async def until(self, holds: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Wait for directives until `holds`; raises what ended the stream."""
        async with asyncio.timeout(timeout_s):
            while not holds():
                assert self._reader is not None
                if self._reader.done():
                    await self._reader
                    raise ConnectionError("the nameserver ended the stream")
                self._heard.clear()
                await self._heard.wait()

    async def until_master(self, epoch: int, timeout_s: float = PATIENCE_S) -> None:
        await self.until(lambda: self.is_master and self.last.epoch == epoch, timeout_s)

    async def _follow(self, call: Any) -> None:
        try:
            while (directive := await call.read()) is not grpc.aio.EOF:
                self.directives.append(directive)
                self._heard.set()
        finally:
            self._heard.set()
