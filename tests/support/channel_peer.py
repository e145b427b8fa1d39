"""A server that treats its callers as servers do: answers, refuses, hangs, stops reading.

As a program it serves at the address in its argument, until it is killed:

    python -m tests.support.channel_peer 127.0.0.1:0
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aerobee.rpc import serving as rpc
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.own_protocol import say_error
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, broker_pb2_grpc, nameserver_pb2, nameserver_pb2_grpc

ROOT = Path(__file__).resolve().parents[2]
QUESTION = nameserver_pb2.QueryRouteRequest
WATCH = nameserver_pb2.WatchRoutesRequest(topics=["orders"])


class Peer(nameserver_pb2_grpc.NameserverServiceServicer, broker_pb2_grpc.SendServiceServicer):
    """QueryRoute does what its topic says; WatchRoutes answers twice, SendStream each frame."""

    def __init__(self, version: int | None = None, engine: Engine = Engine.OWN) -> None:
        self.version = os.getpid() if version is None else version
        self.may_answer = asyncio.Event()
        self.asked = asyncio.Event()
        self.watched = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.callers: set[str] = set()
        self.reads = True
        self.server = rpc.RpcServer(
            say_error, ["aerobee.v1.NameserverService", "aerobee.v1.SendService"], engine=engine
        )
        nameserver_pb2_grpc.add_NameserverServiceServicer_to_server(self, self.server.server)
        broker_pb2_grpc.add_SendServiceServicer_to_server(self, self.server.server)

    def _answer(self) -> nameserver_pb2.QueryRouteResponse:
        return nameserver_pb2.QueryRouteResponse(version=self.version)

    async def QueryRoute(
        self, request: nameserver_pb2.QueryRouteRequest, context: Any
    ) -> nameserver_pb2.QueryRouteResponse:
        self.callers.add(context.peer())
        match request.topics[0] if request.topics else "":
            case "refused":
                raise errors.TopicNotFound("there is no topic 'refused'")
            case "bug":
                raise ZeroDivisionError
            case "late":
                await self._wait(self.asked)
            case "large":
                name = request.topics[1]
                return nameserver_pb2.QueryRouteResponse(
                    version=len(name),
                    routes=[nameserver_pb2.TopicRoute(topic={"name": name})],
                )
        return self._answer()

    async def _wait(self, begun: asyncio.Event) -> None:
        begun.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def WatchRoutes(
        self, request: nameserver_pb2.WatchRoutesRequest, context: Any
    ) -> AsyncIterator[nameserver_pb2.QueryRouteResponse]:
        yield self._answer()
        await self._wait(self.watched)
        yield self._answer()

    async def SendStream(
        self, frames: AsyncIterator[broker_pb2.SendFrame], context: Any
    ) -> AsyncIterator[broker_pb2.SendAckFrame]:
        if not self.reads:
            await self._wait(self.asked)
        async for frame in frames:
            sequence = frame.batches[0].sequence if frame.batches else 0
            yield broker_pb2.SendAckFrame(acks=[broker_pb2.SendAck(sequence=sequence)])


@asynccontextmanager
async def peer_here(
    version: int = 1, engine: Engine = Engine.OWN
) -> AsyncIterator[tuple[Peer, str]]:
    """In this event loop, with its address."""
    peer = Peer(version, engine)
    port = await peer.server.start("127.0.0.1:0")
    try:
        yield peer, f"127.0.0.1:{port}"
    finally:
        await peer.server.stop(0)


@dataclass
class PeerProcess:
    """A peer in a separate process."""

    process: asyncio.subprocess.Process
    address: str

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


async def start_peer(listen: str = "127.0.0.1:0") -> PeerProcess:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.channel_peer", listen,
        stdout=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    return PeerProcess(process, f"{listen.rpartition(':')[0]}:{port}")


async def _main(listen: str) -> None:
    print(await Peer().server.start(listen), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
