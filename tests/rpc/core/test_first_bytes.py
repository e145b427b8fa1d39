"""Two protocols on one port, told apart by their first bytes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from aerobee.rpc.core.limits import ConnectionLimits, Limit
from aerobee.rpc.core.tls import FollowedTls, TlsFiles, client_context, server_context
from tests.support.certificates import Certificate, issue
from tests.support.grpc_core_channel import channel_to
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.waiting import until


class Shouts(asyncio.Protocol):
    """The other protocol: it answers in capitals."""

    def __init__(self, beside: Beside, listener: str) -> None:
        self._beside = beside
        self.listener = listener
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._beside.open.add(self)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())

    def abort(self) -> None:
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._beside.open.discard(self)


class Beside:
    def __init__(self) -> None:
        self.open: set[Shouts] = set()
        self.listeners: list[str] = []

    def connect(self, listener: str) -> Shouts:
        self.listeners.append(listener)
        return Shouts(self, listener)

    def __iter__(self) -> Iterator[Shouts]:
        return iter(list(self.open))

    def __len__(self) -> int:
        return len(self.open)

    async def stop(self, grace_s: float) -> None: ...


async def answer_of(port: int, *pieces: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    name = "localhost" if tls is not None else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)  # so that they arrive apart
    answer = await reader.readexactly(sum(map(len, pieces)))
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize("pieces", [(b"shout",), (b"s", b"hout"), (b"PR", b"x"), (b"PRI", b"me")])
async def test_what_does_not_begin_as_http_2_reaches_the_other_protocol_whole(
    pieces: tuple[bytes, ...],
) -> None:
    beside = Beside()
    async with serving(beside=beside) as running:
        assert await answer_of(running.port, *pieces) == b"".join(pieces).upper()
        await until(lambda: not beside.open)
    assert beside.listeners == [""]


async def test_grpc_is_served_as_without_the_other() -> None:
    beside = Beside()
    async with (
        serving(beside=beside) as running,
        channel_to(f"127.0.0.1:{running.port}") as channel,
    ):
        assert await channel.call(SERVICE + "Echo", b"hello") == b"hello"
    assert beside.listeners == []


async def test_connections_of_both_kinds_count_together() -> None:
    beside = Beside()
    async with serving(beside=beside, connections_max=1) as running:
        _, first = await asyncio.open_connection("127.0.0.1", running.port)
        first.write(b"shout")
        await until(lambda: len(beside) == 1)
        reader, second = await asyncio.open_connection("127.0.0.1", running.port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert running.limits_met == [Limit.CONNECTIONS]
        first.close()
        second.close()
        await until(lambda: not beside.open)


async def test_a_connection_that_says_nothing_is_ended() -> None:
    limits = ConnectionLimits(preface_s=0.05)
    async with serving(beside=Beside(), limits=limits) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"PR")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert running.limits_met == [Limit.PREFACE]
        writer.close()


async def test_one_that_goes_before_it_says_anything_leaves_nothing() -> None:
    async with serving(beside=Beside()) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        await until(lambda: running.server.memory.used > 0)
        writer.close()
        await until(lambda: running.server.memory.used == 0)


# ------------------------------------------------------------------------------ with TLS


def files_of(made: Certificate) -> TlsFiles:
    return TlsFiles(certificate=made.certificate, key=made.key, authorities=made.ca)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return files_of(issue(trustme.CA(), tmp_path, "localhost"))


def without_protocols(files: TlsFiles) -> ssl.SSLContext:
    """A client that shows the files' certificate and offers no protocol by ALPN."""
    context = ssl.create_default_context(cafile=str(files.authorities))
    context.load_cert_chain(str(files.certificate), str(files.key))
    return context


async def test_both_are_served_through_tls(files: TlsFiles) -> None:
    beside = Beside()
    async with serving(beside=beside, tls=server_context(files), connections_max=1) as running:
        tls = without_protocols(files)
        assert await answer_of(running.port, b"s", b"hout", tls=tls) == b"SHOUT"
        await until(lambda: not beside.open)
        h2 = client_context(files)
        async with channel_to(running.target, tls=h2, server_name="localhost") as channel:
            assert await channel.call(SERVICE + "Echo", b"hello") == b"hello"
        assert beside.listeners == [""]
        assert running.limits_met == []


async def test_one_port_may_take_the_other_with_and_without_tls(files: TlsFiles) -> None:
    beside = Beside()
    served = serving(beside=beside, tls=server_context(files), accepts_plain_text=True)
    async with served as running:
        assert await answer_of(running.port, b"plain") == b"PLAIN"
        tls = without_protocols(files)
        assert await answer_of(running.port, b"secret", tls=tls) == b"SECRET"
        await until(lambda: not beside.open)


async def test_a_port_with_tls_takes_nothing_in_plain_text(files: TlsFiles) -> None:
    beside = Beside()
    async with serving(beside=beside, tls=server_context(files)) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"plain")
        with contextlib.suppress(ConnectionError):
            assert b"PLAIN" not in await reader.read()
        assert beside.listeners == []
        writer.close()


async def test_one_that_is_silent_after_its_handshake_is_ended(files: TlsFiles) -> None:
    limits = ConnectionLimits(preface_s=0.2)
    async with serving(beside=Beside(), tls=server_context(files), limits=limits) as running:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", running.port, ssl=without_protocols(files), server_hostname="localhost"
        )
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            assert await reader.read() == b""
        assert running.limits_met == [Limit.PREFACE]
        assert running.server.memory.used == 0
        writer.close()


async def test_one_whose_authority_was_removed_is_ended(tmp_path: Path) -> None:
    ours, theirs = trustme.CA(), trustme.CA()
    server = files_of(issue(ours, tmp_path / "server", "localhost"))
    client = files_of(issue(theirs, tmp_path / "client", "who"))
    assert server.authorities is not None
    authority = tmp_path / "authority"
    trusted = Path(server.authorities)
    only_ours = trusted.read_bytes()
    authority.write_bytes(only_ours)
    trusted.write_bytes(only_ours + theirs.cert_pem.bytes())
    followed = FollowedTls(server, server_context)
    beside = Beside()
    async with serving(beside=beside, tls=followed) as running:
        tls = without_protocols(replace(client, authorities=authority))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", running.port, ssl=tls, server_hostname="localhost"
        )
        writer.write(b"shout")
        assert await reader.readexactly(5) == b"SHOUT"
        trusted.write_bytes(only_ours)
        assert await asyncio.to_thread(followed.refresh)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            assert await reader.read() == b""
        await until(lambda: not beside.open)
        writer.close()
