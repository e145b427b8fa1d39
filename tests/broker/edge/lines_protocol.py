"""A second protocol over the broker's domain, for tests only: requests and answers are lines of
JSON over a socket. It says errors in words of its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol

from aerobee.broker.features import Feature
from aerobee.broker.groups.ownership import NOBODYS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.reading.egress import ColdRead, Egress, Fetched, ReadCode
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.ingest import Ingest
from aerobee.broker.sending.message_encoder import MessageEncoder, OutgoingMessage
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, Busy, InvalidArgument, QueueNotFound, TopicNotFound
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.format.record import iterate_records
from aerobee.store.format.record_layout import HostAddress

SOMEWHERE = HostAddress(bytes(4), 0)
NO_LEASE = 0

WORDS: dict[type[AerobeeError], str] = {
    AerobeeError: "failed",
    Busy: "later",
    InvalidArgument: "nonsense",
    QueueNotFound: "no such queue",
    TopicNotFound: "no such topic",
}
ENDS: dict[ReadCode, str] = {
    ReadCode.OK: "found",
    ReadCode.NO_NEW_MESSAGE: "nothing new",
    ReadCode.OFFSET_TOO_SMALL: "gone",
    ReadCode.OFFSET_TOO_LARGE: "not yet there",
    ReadCode.MESSAGE_REMOVED: "gone",
}


class LinesEdge:
    """Serves lines."""

    def __init__(
        self,
        ingest: Ingest,
        encoder: MessageEncoder,
        durability: Durability,
        egress: Egress,
        offsets: ConsumerOffsets,
        clock: Clock,
    ) -> None:
        self._ingest = ingest
        self._encoder = encoder
        self._durability = durability
        self._egress = egress
        self._offsets = offsets
        self._clock = clock
        self._server: asyncio.Server | None = None
        self.port = 0
        self.is_serving = False

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def set_serving(self, serving: bool) -> None:
        self.is_serving = serving

    def end_pulls(self) -> None:
        """None of them waits."""

    async def stop(self, grace_s: float) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            request = json.loads(line)
            try:
                answer = await getattr(self, f"_{request.pop('do')}")(**request)
            except AerobeeError as error:
                kind = next(each for each in type(error).__mro__ if each in WORDS)
                answer = {"error": WORDS[kind], "why": str(error)}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _send(self, topic: str, queue: int, body: str, tag: str = "") -> dict[str, Any]:
        message = OutgoingMessage(topic=topic, queue_id=queue, body=body.encode(), tag=tag)
        encoded = self._encoder.encode(message, SOMEWHERE)
        (receipt,) = self._ingest.accept([encoded.batch])
        if receipt.error is not None:
            raise receipt.error
        if receipt.wait_end:
            deadline_s = self._clock.monotonic_s() + 5.0
            receipt.late = await self._durability.wait_safe(receipt.wait_end, deadline_s)
        safe = "unknown" if receipt.late else "promised" if receipt.wait_end else "in memory"
        return {"offset": receipt.base_queue_offset, "id": encoded.message_id, "safe": safe}

    async def _pull(self, topic: str, queue: int, offset: int) -> dict[str, Any]:
        wanted = QueueRead(topic, queue, offset, 1 << 20, 100)
        found: Fetched | ColdRead = self._egress.read(wanted)
        if isinstance(found, ColdRead):
            found = await self._egress.load(found)
        bodies = [bytes(record.body).decode() for record in iterate_records(found.records)]
        return {"end": ENDS[found.code], "bodies": bodies, "next": found.next_offset}

    async def _commit(self, group: str, topic: str, queue: int, offset: int) -> dict[str, Any]:
        await self._offsets.begun()
        done = self._offsets.commit(GroupQueue(group, topic, queue), offset, NOBODYS)
        if done is not None:
            await done
        return {"committed": offset}

    async def _committed(self, group: str, topic: str, queue: int) -> dict[str, Any]:
        await self._offsets.begun()
        return {"committed": self._offsets.query(GroupQueue(group, topic, queue))}


class Parts(Protocol):
    """What lines need of the broker."""

    ingest: Ingest
    encoder: MessageEncoder
    durability: Durability
    egress: Egress
    offsets: ConsumerOffsets
    clock: Clock


class Lines(Feature):
    """A broker with this one serves lines, too."""

    def __init__(self, parts: Parts, opened: None) -> None:
        self.edge = LinesEdge(
            parts.ingest,
            parts.encoder,
            parts.durability,
            parts.egress,
            parts.offsets,
            parts.clock,
        )
        self.edges = (self.edge,)
