"""Clients of Apache RocketMQ 5's gRPC API that only wait: `idle_clients ADDRESS CLIENTS TOPIC`.

Each has its own connection with what a push consumer keeps open: a Telemetry stream that has sent
its settings, and one ReceiveMessage that waits for messages and is restarted when it times out.
Prints a line once all wait, and ends with standard input.

HTTP/2 is written by hand. A channel for each of ten thousand clients would keep this process busier
than the server, and the header fields here go into the server's dynamic table, like those of
Apache's Java client, which is part of what a client costs a server.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import cast

import uvloop

from aerobee.rpc.core import frames, hpack
from aerobee.runtime.machine import raise_limit
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

GROUP_CLIENTS = 100
"""How many clients share a group and its queues."""
QUEUES = 4
CONNECTING = 64
"""How many connect at a time."""
POLL_S = 20
POLL_S_MIN = 4.0
"""A poll that ends earlier was refused; the shortest granted poll waits for 5 s."""
WAIT_S = 240.0
_SERVICE = "/apache.rocketmq.v2.MessagingService/"
_TELEMETRY_ID = 1


class FieldTable:
    """One client's header fields in a server's dynamic table: RFC 7541, as gRPC for Java uses it.

    Each field enters the table, takes one byte while it is there, and is evicted when newer ones
    need its room.
    """

    def __init__(self) -> None:
        self._fields: list[tuple[str, str]] = []
        """Newest last."""
        self._bytes = 0

    def block(self, fields: Iterable[tuple[str, str]]) -> bytes:
        """Encoded without Huffman coding. It must be sent before any other block."""
        return b"".join([self._encoded(field) for field in fields])

    def _encoded(self, field: tuple[str, str]) -> bytes:
        if field in self._fields:
            return bytes((0x80 + hpack.FIRST_DYNAMIC + self._age(field),))
        name, value = field
        self._bytes += _size(field)
        while self._bytes > hpack.TABLE_BYTES:
            self._bytes -= _size(self._fields.pop(0))
        self._fields.append(field)
        assert max(len(name), len(value)) < 0x7F, "a length is one byte"
        strings = (bytes((len(each),)) + each.encode() for each in field)
        return b"\x40" + b"".join(strings)

    def _age(self, field: tuple[str, str]) -> int:
        return len(self._fields) - 1 - self._fields.index(field)


def _size(field: tuple[str, str]) -> int:
    return len(field[0]) + len(field[1]) + hpack.ENTRY_OVERHEAD


def request_fields(
    method: str, authority: str, client_id: str, number: int
) -> Iterator[tuple[str, str]]:
    """The fields of Apache's Java client."""
    yield from ((":scheme", "http"), (":method", "POST"), (":path", _SERVICE + method))
    yield from ((":authority", authority), ("content-type", "application/grpc"), ("te", "trailers"))
    yield from (("user-agent", "grpc-java-netty/1.50.0"), ("grpc-accept-encoding", "gzip"))
    yield from (("x-mq-language", "JAVA"), ("x-mq-protocol", "v2"))
    yield from (("x-mq-client-version", "5.0.8"), ("x-mq-namespace", ""))
    yield ("x-mq-date-time", time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
    yield ("x-mq-request-id", f"{number:08x}-0000-4000-8000-{zlib.crc32(client_id.encode()):012x}")
    yield ("x-mq-client-id", client_id)
    if method == "ReceiveMessage":
        yield ("grpc-timeout", f"{POLL_S + 3}S")


def settings_of(group: str, topic: str) -> bytes:
    """The settings of a push consumer."""
    subscription = v2.Subscription(group=v2.Resource(name=group))
    entry = subscription.subscriptions.add(topic=v2.Resource(name=topic))
    entry.expression.type, entry.expression.expression = v2.TAG, "*"
    settings = v2.Settings(client_type=v2.PUSH_CONSUMER, subscription=subscription)
    return service_pb2.TelemetryCommand(settings=settings).SerializeToString()


def poll_of(group: str, topic: str, queue_id: int, address: str) -> bytes:
    """For one queue, as push consumers poll each of theirs."""
    queue = v2.MessageQueue(topic=v2.Resource(name=topic), id=queue_id, permission=v2.READ_WRITE)
    queue.broker.name = "broker-a"
    host, port = address.rsplit(":", 1)
    queue.broker.endpoints.scheme = v2.IPv4
    queue.broker.endpoints.addresses.add(host=host, port=int(port))
    queue.accept_message_types.append(v2.NORMAL)
    return service_pb2.ReceiveMessageRequest(
        group=v2.Resource(name=group),
        message_queue=queue,
        filter_expression=v2.FilterExpression(type=v2.TAG, expression="*"),
        batch_size=32,
        auto_renew=True,
        long_polling_timeout=timedelta(seconds=POLL_S),
    ).SerializeToString()


class Waiting:
    """How many clients wait, and what went wrong."""

    def __init__(self, clients: int) -> None:
        self._missing = clients
        loop = asyncio.get_running_loop()
        self.all_wait: asyncio.Future[None] = loop.create_future()
        self.is_over: asyncio.Future[None] = loop.create_future()
        """Fails with the first client that stops waiting."""

    def one_more(self) -> None:
        self._missing -= 1
        if self._missing == 0 and not self.all_wait.done():
            self.all_wait.set_result(None)

    def failed(self, reason: str) -> None:
        if not self.is_over.done():
            self.is_over.set_exception(RuntimeError(reason))


class IdleClient(asyncio.Protocol):
    """One client and its connection."""

    def __init__(self, number: int, address: str, topic: str, waiting: Waiting) -> None:
        group = f"idle-{number // GROUP_CLIENTS}"
        self._client_id = f"host-{number}@{1_000 + number}@0@{number:x}"
        self._address = address
        self._settings = settings_of(group, topic)
        self._poll = poll_of(group, topic, number % QUEUES, address)
        self._numbers = itertools.count(1)
        self._table = FieldTable()
        self._waiting = waiting
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._poll_id = _TELEMETRY_ID
        self._poll_began_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports behave like this class without being one.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(frames.PREFACE + frames.settings_frame(()))
        self._call("Telemetry", _TELEMETRY_ID, self._settings, is_whole=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.failed(f"{self._client_id} lost its connection: {exc or 'it was closed'}")

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        while len(data) - at >= frames.HEADER_BYTES:
            high, low, kind, flags, stream_id = frames.unpack_header(data, at)
            end = at + frames.HEADER_BYTES + (high << 8 | low)
            if end > len(data):
                break
            self._take(kind, flags, stream_id, data[at + frames.HEADER_BYTES : end])
            at = end
        self._rest = data[at:]

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        assert self._transport is not None, "it has sent something"
        match kind:
            case frames.SETTINGS | frames.PING if not flags & frames.ACK:
                answer = payload if kind == frames.PING else b""
                self._transport.write(frames.frame(kind, frames.ACK, 0, answer))
            case frames.DATA if stream_id == _TELEMETRY_ID and self._poll_id == _TELEMETRY_ID:
                self._begin_poll()
                self._waiting.one_more()
            case frames.HEADERS | frames.DATA if flags & frames.END_STREAM:
                self._ended(stream_id)
            case frames.RST_STREAM:
                self._ended(stream_id)  # a late server resets a poll at its deadline
            case frames.GOAWAY:
                self._waiting.failed(f"{self._client_id} was sent away: {payload!r}")

    def _ended(self, stream_id: int) -> None:
        """The call is over; a server may signal it twice."""
        if stream_id not in (_TELEMETRY_ID, self._poll_id):
            return
        if stream_id == _TELEMETRY_ID:
            self._waiting.failed(f"{self._client_id}: its Telemetry has ended")
        elif time.monotonic() - self._poll_began_s < POLL_S_MIN:
            self._waiting.failed(f"{self._client_id}: its poll was refused")
        else:
            self._begin_poll()

    def _begin_poll(self) -> None:
        self._poll_id += 2
        self._poll_began_s = time.monotonic()
        self._call("ReceiveMessage", self._poll_id, self._poll, is_whole=True)

    def _call(self, method: str, stream_id: int, message: bytes, *, is_whole: bool) -> None:
        assert self._transport is not None, "it is connected"
        fields = request_fields(method, self._address, self._client_id, next(self._numbers))
        flags = frames.END_STREAM if is_whole else 0
        prefix = b"\0" + len(message).to_bytes(4, "big")
        self._transport.write(
            frames.frame(frames.HEADERS, frames.END_HEADERS, stream_id, self._table.block(fields))
            + frames.frame(frames.DATA, flags, stream_id, prefix + message)
        )


async def wait(address: str, clients: int, topic: str) -> None:
    """Connect them, print a line, and stay until standard input ends."""
    raise_limit()
    loop = asyncio.get_running_loop()
    waiting = Waiting(clients)
    host, port = address.rsplit(":", 1)
    numbers = iter(range(clients))

    async def connect() -> None:
        for number in numbers:

            def client(number: int = number) -> IdleClient:
                return IdleClient(number, address, topic, waiting)

            await loop.create_connection(client, host, int(port))

    async def come() -> None:
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*(connect() for _ in range(CONNECTING)))
            await waiting.all_wait
        print(clients, flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)

    ours = asyncio.create_task(come(), name="come")
    ended: set[asyncio.Future[None]] = {ours, waiting.is_over}
    done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
    if waiting.is_over in done:
        # Not by returning from this function: a thread is still reading standard input.
        print(waiting.is_over.exception(), file=sys.stderr, flush=True)
        os._exit(1)
    await ours


if __name__ == "__main__":
    uvloop.run(wait(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
