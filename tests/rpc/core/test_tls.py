"""TLS between both ends: who is admitted, which versions, and certificates that are replaced."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import socket
import ssl
import warnings
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.limits import ConnectionLimits, Limit
from aerobee.rpc.core.method import Method, coroutine, synchronous
from aerobee.rpc.core.server import HANDSHAKE_BYTES
from aerobee.rpc.core.server_call import ServerCall
from aerobee.rpc.core.status import Status
from aerobee.rpc.core.tls import (
    ClientAuth,
    FollowedTls,
    TlsFiles,
    client_context,
    server_context,
)
from tests.support.certificates import issue
from tests.support.grpc_core_channel import ECHO, SWIFT, channel_to
from tests.support.grpc_core_server import SERVICE, Serving, echo_methods, serving
from tests.support.waiting import until


def issued(authority: trustme.CA, folder: Path, name: str) -> TlsFiles:
    """What both ends of mutual TLS have; further calls for a folder replace its files."""
    new = folder.with_suffix(".new")
    made = issue(authority, new, name)
    folder.mkdir(exist_ok=True)
    for path in (made.ca, made.certificate, made.key):
        shutil.move(path, folder / path.name)
    new.rmdir()
    return TlsFiles(
        certificate=folder / "tls.crt", key=folder / "tls.key", authorities=folder / "ca.crt"
    )


def visitors(seen: list[str]) -> list[Method]:
    """`Echo` and `Chat`, which write down whose certificate their callers have."""

    def note(call: ServerCall) -> None:
        names = (call.peer_certificate() or {}).get("subjectAltName", ())
        seen.append(names[0][1] if names else "")

    def echo(request: bytes, call: ServerCall) -> bytes:
        note(call)
        return request

    chat = next(one for one in echo_methods([]) if one.path == SERVICE + "Chat")
    return [
        synchronous(ECHO, echo),
        coroutine(chat.path, chat.handler, streams_requests=True, streams_answers=True),
    ]


async def refusal(address: str, tls: ssl.SSLContext, server_name: str = "localhost") -> CallError:
    async with channel_to(address, tls=tls, server_name=server_name, limits=SWIFT) as channel:
        with pytest.raises(CallError) as refused:
            await channel.call(ECHO, b"", timeout_s=20)
    assert refused.value.status is Status.UNAVAILABLE
    return refused.value


async def test_both_ends_show_certificates(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = issued(authority, tmp_path / "server", "localhost")
    client = issued(authority, tmp_path / "client", "visitor.example")
    seen: list[str] = []
    async with serving(*visitors(seen), tls=server_context(server)) as running:
        tls = client_context(client)
        async with channel_to(running.target, tls=tls, server_name="localhost") as channel:
            for size in (0, 1_000, 3_000_000):
                assert await channel.call(ECHO, b"x" * size) == b"x" * size
        assert seen == ["visitor.example"] * 3
        wrong = await refusal(running.target, tls, "other.example")
        assert "certificate is not valid" in wrong.message


async def test_grpcio_and_our_server_show_certificates(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = issued(authority, tmp_path / "server", "localhost")
    made = issue(authority, tmp_path / "client", "visitor.example")
    credentials = grpc.ssl_channel_credentials(
        made.ca.read_bytes(), made.key.read_bytes(), made.certificate.read_bytes()
    )
    options = [("grpc.ssl_target_name_override", "localhost")]
    seen: list[str] = []
    async with (
        serving(*visitors(seen), tls=server_context(server)) as running,
        grpc.aio.secure_channel(running.target, credentials, options=options) as channel,
    ):
        call: Any = channel.unary_unary(ECHO)
        for size in (0, 1_000, 3_000_000):
            assert await call(b"x" * size) == b"x" * size
    assert seen == ["visitor.example"] * 3


async def test_a_client_without_a_certificate_of_the_authority_is_not_admitted(
    tmp_path: Path,
) -> None:
    authority = trustme.CA()
    server = issued(authority, tmp_path / "server", "localhost")
    stranger = issued(trustme.CA(), tmp_path / "stranger", "stranger.example")
    stranger_with_trust = TlsFiles(
        certificate=stranger.certificate, key=stranger.key, authorities=server.authorities
    )
    seen: list[str] = []
    async with serving(*visitors(seen), tls=server_context(server)) as running:
        for files in (TlsFiles(authorities=server.authorities), stranger_with_trust):
            assert (await refusal(running.target, client_context(files))).is_unprocessed
        await until(lambda: not running.server.connections)
    assert seen == []


async def test_only_tls_1_2_and_newer_are_spoken(tmp_path: Path) -> None:
    files = issued(trustme.CA(), tmp_path / "server", "localhost")
    by_file = TlsFiles(certificate=files.certificate, key=files.key)
    async with serving(tls=server_context(by_file)) as running:
        for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            tls = client_context(TlsFiles(authorities=files.authorities))
            tls.maximum_version = newest
            async with channel_to(running.target, tls=tls, server_name="localhost") as channel:
                assert await channel.call(ECHO, b"x") == b"x"
        old = ssl.create_default_context(cafile=str(files.authorities))
        old.set_alpn_protocols(["h2"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        assert (await refusal(running.target, old)).is_unprocessed


async def test_a_server_that_does_not_offer_h2_is_not_spoken_to(tmp_path: Path) -> None:
    files = issued(trustme.CA(), tmp_path / "server", "localhost")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(tmp_path / "server" / "tls.crt", tmp_path / "server" / "tls.key")
    async with serving(tls=theirs) as running:
        ours = client_context(TlsFiles(authorities=files.authorities))
        assert "does not offer h2" in (await refusal(running.target, ours)).message
        running.met.clear()


@pytest.mark.parametrize("offered", [[], ["http/1.1"]])
async def test_a_client_that_does_not_offer_h2_is_not_spoken_to(
    offered: list[str], tmp_path: Path
) -> None:
    files = issued(trustme.CA(), tmp_path / "server", "localhost")
    by_file = TlsFiles(certificate=files.certificate, key=files.key)
    theirs = ssl.create_default_context(cafile=str(files.authorities))
    theirs.set_alpn_protocols(offered)
    async with serving(tls=server_context(by_file)) as running:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", running.port, ssl=theirs, server_hostname="localhost"
        )
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert running.limits_met == [Limit.PROTOCOL]


async def test_one_port_serves_both_and_waits_for_neither_for_long(tmp_path: Path) -> None:
    files = issued(trustme.CA(), tmp_path / "server", "localhost")
    server = server_context(TlsFiles(certificate=files.certificate, key=files.key))
    async with serving(tls=server, accepts_plain_text=True) as running:
        tls = client_context(TlsFiles(authorities=files.authorities))
        async with (
            channel_to(running.target, tls=tls, server_name="localhost") as encrypted,
            channel_to(running.target) as plain,
        ):
            for size in (0, 3_000_000):
                for channel in (encrypted, plain):
                    assert await channel.call(ECHO, b"x" * size) == b"x" * size
        assert running.limits_met == []
    # A server of its own: a busy machine takes longer for an honest handshake.
    limits = ConnectionLimits(preface_s=0.3)
    async with serving(tls=server, accepts_plain_text=True, limits=limits) as running:
        gone, silent, hesitant = [
            await asyncio.open_connection("127.0.0.1", running.port) for _ in range(3)
        ]
        gone[1].close()
        hesitant[1].write(b"\x16")
        for reader, writer in (silent, hesitant):
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 60)
            writer.close()
        assert running.limits_met == [Limit.PREFACE] * 2


async def test_a_server_takes_new_certificates_without_ending_a_connection(tmp_path: Path) -> None:
    """Of another authority, too, as long as the file has the former one beside it."""
    old = issued(trustme.CA(), tmp_path / "old", "old.example")
    folder = tmp_path / "server"
    shutil.copytree(tmp_path / "old", folder)
    names = TlsFiles(
        certificate=folder / "tls.crt", key=folder / "tls.key", authorities=folder / "ca.crt"
    )
    server = FollowedTls(names, server_context)
    assert not server.refresh()
    seen: list[str] = []
    async with serving(*visitors(seen), tls=server) as running:
        async with channel_to(
            running.target, tls=client_context(old), server_name="old.example", limits=SWIFT
        ) as channel:
            chat = channel.stream(SERVICE + "Chat")
            await chat.write(b"before")
            assert await chat.read() == b"before"
            authority = trustme.CA()
            issued(authority, folder, "new.example")
            both = (old.authorities, folder / "ca.crt")
            (folder / "ca.crt").write_bytes(b"".join(path.read_bytes() for path in both if path))
            assert server.refresh()
            await chat.write(b"after")
            assert await chat.read() == b"after"
            assert await channel.call(ECHO, b"x") == b"x"
            assert len(channel.connections) == 1
            chat.cancel()
        new = issued(authority, tmp_path / "new", "new.example")
        async with channel_to(
            running.target, tls=client_context(new), server_name="new.example"
        ) as channel:
            assert await channel.call(ECHO, b"x") == b"x"
        await refusal(running.target, client_context(old), "old.example")
    assert seen == ["old.example", "new.example"]


def write_authorities(path: Path, *authorities: trustme.CA) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(b"".join(one.cert_pem.bytes() for one in authorities))
    new.replace(path)


async def test_a_server_ends_calls_of_those_it_trusts_no_more_and_no_others(tmp_path: Path) -> None:
    """An authority is taken out of its file: even streams of its clients end."""
    leaving, staying = trustme.CA(), trustme.CA()
    served = issued(staying, tmp_path / "served", "localhost")
    file = tmp_path / "served" / "ca.crt"
    write_authorities(file, leaving, staying)
    server = FollowedTls(served, server_context)
    contexts = []
    for authority, name in ((leaving, "leaves.example"), (staying, "stays.example")):
        own = issued(authority, tmp_path / name, name)
        contexts.append(client_context(replace(own, authorities=served.authorities)))
    async with (
        serving(*echo_methods([]), tls=server) as running,
        channel_to(running.target, tls=contexts[0], server_name="localhost") as leaves,
        channel_to(running.target, tls=contexts[1], server_name="localhost") as stays,
    ):
        chats = [channel.stream(SERVICE + "Chat") for channel in (leaves, stays)]
        for chat in chats:
            await chat.write(b"before")
            assert await chat.read() == b"before"
        write_authorities(file, staying)
        assert await asyncio.to_thread(server.refresh)
        with pytest.raises(CallError) as ended:
            await asyncio.wait_for(chats[0].read(), 20)
        assert ended.value.status is Status.UNAVAILABLE
        assert running.limits_met == [Limit.HANDSHAKE]
        await refusal(running.target, contexts[0])
        await chats[1].write(b"after")
        assert await chats[1].read() == b"after"
        chats[1].cancel()


async def test_an_authority_that_one_listener_trusts_no_more_is_still_good_at_the_other(
    tmp_path: Path,
) -> None:
    leaving, staying = trustme.CA(), trustme.CA()
    own = issued(leaving, tmp_path / "client", "client.example")
    client = client_context(own)
    listeners = {}
    async with serving(*echo_methods([])) as running:
        chats = {}
        async with AsyncExitStack() as stack:
            for name in ("inside", "outside"):
                served = issued(leaving, tmp_path / name, "localhost")
                write_authorities(tmp_path / name / "ca.crt", leaving, staying)
                listeners[name] = FollowedTls(served, server_context)
                port = await running.server.listen(
                    "127.0.0.1", 0, tls=listeners[name], listener=name
                )
                channel = await stack.enter_async_context(
                    channel_to(f"127.0.0.1:{port}", tls=client, server_name="localhost")
                )
                chats[name] = channel.stream(SERVICE + "Chat")
                await chats[name].write(b"before")
                assert await chats[name].read() == b"before"
            write_authorities(tmp_path / "outside" / "ca.crt", staying)
            assert await asyncio.to_thread(listeners["outside"].refresh)
            with pytest.raises(CallError) as ended:
                await asyncio.wait_for(chats["outside"].read(), 20)
            assert ended.value.status is Status.UNAVAILABLE
            await chats["inside"].write(b"after")
            assert await chats["inside"].read() == b"after"
            chats["inside"].cancel()


async def test_a_client_ends_calls_to_servers_it_trusts_no_more(tmp_path: Path) -> None:
    leaving, staying = trustme.CA(), trustme.CA()
    file = tmp_path / "ca.crt"
    write_authorities(file, leaving, staying)
    client = FollowedTls(TlsFiles(authorities=file), client_context)
    contexts = [
        server_context(issued(authority, tmp_path / name, "localhost"), ClientAuth.NONE)
        for authority, name in ((leaving, "leaves"), (staying, "stays"))
    ]
    async with (
        serving(*echo_methods([]), tls=contexts[0]) as first,
        serving(*echo_methods([]), tls=contexts[1]) as second,
        channel_to(first.target, tls=client, server_name="localhost", limits=SWIFT) as leaves,
        channel_to(second.target, tls=client, server_name="localhost", limits=SWIFT) as stays,
    ):
        chats = [channel.stream(SERVICE + "Chat") for channel in (leaves, stays)]
        for chat in chats:
            await chat.write(b"before")
            assert await chat.read() == b"before"
        write_authorities(file, staying)
        assert await asyncio.to_thread(client.refresh)
        with pytest.raises(CallError, match="its certificate's authority is no longer trusted"):
            await asyncio.wait_for(chats[0].read(), 20)
        with pytest.raises(CallError, match="its certificate is not valid"):
            await leaves.call(ECHO, b"x", timeout_s=20)
        await chats[1].write(b"after")
        assert await chats[1].read() == b"after"
        chats[1].cancel()


async def test_a_channel_shows_its_new_certificate_on_its_next_connection(tmp_path: Path) -> None:
    authority = trustme.CA()
    files = issued(authority, tmp_path / "client", "before.example")
    client = FollowedTls(files, client_context)
    tls = server_context(issued(authority, tmp_path / "server", "localhost"))
    seen: list[str] = []
    async with (
        serving(*visitors(seen), tls=tls) as running,
        channel_to(running.target, tls=client, server_name="localhost", limits=SWIFT) as channel,
    ):
        await channel.call(ECHO, b"")
        issued(authority, tmp_path / "client", "after.example")
        assert client.refresh()
        await channel.call(ECHO, b"")
        for connection in running.server.connections:
            connection.drain()
        await until(lambda: not channel.connections)
        await channel.call(ECHO, b"", wait_for_ready=True, timeout_s=20)
    assert seen == ["before.example", "before.example", "after.example"]


async def test_files_that_are_being_replaced_are_told_and_tried_again(tmp_path: Path) -> None:
    authority = trustme.CA()
    files = issued(authority, tmp_path / "server", "localhost")
    followed = FollowedTls(files, server_context)
    first = followed.newest
    told: list[OSError] = []
    following = asyncio.ensure_future(followed.follow(0.01, told.append))
    (tmp_path / "server" / "tls.key").write_text("half a k")
    await until(lambda: any(isinstance(error, ssl.SSLError) for error in told))
    (tmp_path / "server" / "tls.key").unlink()
    await until(lambda: any(isinstance(error, FileNotFoundError) for error in told))
    assert followed.newest is first
    issued(authority, tmp_path / "server", "localhost")
    await until(lambda: followed.newest is not first)
    following.cancel()


async def test_handshakes_that_nobody_ends_are_counted_and_bounded(tmp_path: Path) -> None:
    """Sockets that say nothing, or half a word, take the places of connections, and not for long:
    a client that comes then finds one."""
    files = issued(trustme.CA(), tmp_path / "both", "localhost")
    limits = ConnectionLimits(preface_s=0.5)
    tls = client_context(files)
    async with serving(tls=server_context(files), limits=limits, connections_max=10) as running:
        silent = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(30)]
        for _, writer in silent[::2]:
            writer.write(b"\x16\x03\x01")  # how a ClientHello begins
        closed = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
        await until(lambda: running.limits_met == [Limit.CONNECTIONS] * 20)
        assert (await refusal(running.target, tls)).is_unprocessed
        async with asyncio.timeout(10):
            await asyncio.gather(*closed, return_exceptions=True)
        refused = [limit for limit in running.limits_met if limit is Limit.CONNECTIONS]
        assert len(refused) > 20
        assert running.limits_met == [*refused, *[Limit.PREFACE] * 10]
        async with channel_to(running.target, tls=tls, server_name="localhost") as channel:
            assert await channel.call(ECHO, b"x") == b"x"
        for _, writer in silent:
            writer.close()


class WithoutFilesOnce(socket.socket):
    """The process has all the files it may have when the first connection comes."""

    refusals = 0

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.refusals:
            self.refusals = 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


async def test_half_open_handshakes_have_an_eighth_of_the_memory_and_the_oldest_makes_room(
    tmp_path: Path,
) -> None:
    """Who opens handshakes and leaves them keeps nobody out, and its memory is counted."""
    served = issued(trustme.CA(), tmp_path, "localhost")
    server = server_context(replace(served, authorities=None))
    room = 8
    memory = 8 * room * HANDSHAKE_BYTES
    async with serving(*echo_methods([]), tls=server, memory_bytes_max=memory) as running:
        idle = []
        for number in range(3 * room):
            idle.append(await asyncio.open_connection("127.0.0.1", running.port))
            least = min(number + 1, room)
            await until(partial(held_at_least, running, least))
            assert used(running) == least
        assert await asyncio.wait_for(idle[0][0].read(), 20) == b"", "the oldest were ended"
        assert running.limits_met == [Limit.HANDSHAKES] * (2 * room)
        client = client_context(replace(served, certificate=None, key=None))
        async with channel_to(running.target, tls=client, server_name="localhost") as channel:
            assert await channel.call(ECHO, b"x") == b"x"
        running.met.clear()
        for _, writer in idle:
            writer.close()
        await until(lambda: used(running) == 0)


def held_at_least(running: Serving, handshakes: int) -> bool:
    return used(running) >= handshakes


def used(running: Serving) -> int:
    return running.server.memory.used // HANDSHAKE_BYTES


async def test_connections_that_could_not_be_accepted_are_accepted_later(tmp_path: Path) -> None:
    files = issued(trustme.CA(), tmp_path / "both", "localhost")
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    listening = WithoutFilesOnce()
    listening.bind(("127.0.0.1", 0))
    target = f"127.0.0.1:{listening.getsockname()[1]}"
    async with serving() as running:
        await running.server.listen_on(listening, tls=server_context(files))
        tls = client_context(files)
        async with channel_to(target, tls=tls, server_name="localhost") as channel:
            assert await channel.call(ECHO, b"x", timeout_s=20) == b"x"
    assert [str(one["exception"]) for one in told] == ["[Errno 24] Too many open files"]


async def test_a_handshake_that_ends_after_a_stop_has_begun_gives_no_connection(
    tmp_path: Path,
) -> None:
    files = issued(trustme.CA(), tmp_path / "both", "localhost")
    async with serving(tls=server_context(files)) as running:
        tls = client_context(files)
        async with channel_to(running.target, tls=tls, server_name="localhost") as channel:
            call = channel.start(SERVICE + "Never", b"")
            await until(lambda: running.server.connections)
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            await asyncio.sleep(0.02)  # for the server to accept it
            stopping = asyncio.ensure_future(running.server.stop(20))
            await asyncio.sleep(0)
            with contextlib.suppress(ConnectionError):
                await writer.start_tls(tls, server_hostname="localhost")
                assert await reader.read() == b"", "not even SETTINGS"
            assert not stopping.done()
            assert len(running.server.connections) == 1
            writer.close()
            call.cancel()
            await stopping
