"""A header block that nobody honest sends fails its stream or its connection, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aerobee.rpc.core import frames, request_head
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.limits import Limit
from tests.support.compiled_form import replaces_what_is_compiled
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.raw_http2 import call, data, headers, message, raw_peer, request_block


@pytest.mark.parametrize("digits", [20, 4_301, 5_000, 16_000])
async def test_a_content_length_beyond_any_length_fails_its_stream(digits: int) -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        block = request_block(SERVICE + "Echo", (b"content-length", b"9" * digits))
        await peer.send(headers(1, block))
        refused = await peer.expect(frames.RST_STREAM)
        assert (refused.stream_id, refused.code) == (1, ErrorCode.PROTOCOL_ERROR)
        await peer.send(call(3, SERVICE + "Echo", b"x", (b"content-length", b"6")))
        assert await peer.status(3) == b"0"
        assert running.met == []


async def test_the_longest_content_length_is_read_and_not_kept() -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        block = request_block(SERVICE + "Echo", (b"content-length", b"9" * 19))
        await peer.send(headers(1, block), data(1, message(b"x"), end=True))
        assert (await peer.expect(frames.RST_STREAM)).code == ErrorCode.PROTOCOL_ERROR


@replaces_what_is_compiled(request_head)
@pytest.mark.parametrize("error", [ValueError("9" * 9_000), KeyError("a\nb"), RecursionError()])
async def test_whatever_a_parser_raises_ends_the_connection_with_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(value: bytes) -> float:
        raise error

    seen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: seen.append(told))
    async with serving() as running:
        with monkeypatch.context() as patched, caplog.at_level(logging.DEBUG):
            patched.setattr(request_head, "timeout_s", fail)
            async with raw_peer(running.port) as peer:
                await peer.send(call(1, SERVICE + "Never"))
                await peer.send(call(3, SERVICE + "Echo", b"", (b"grpc-timeout", b"5S")))
                assert (await peer.goaway()).code == ErrorCode.INTERNAL_ERROR
                await peer.closed()
        (met,) = running.met
        limit, reason = met
        assert limit is Limit.BUG
        assert reason.startswith(f"{type(error).__name__} at test_heads.py:")
        assert len(reason) < 100
        assert "\n" not in reason
        running.met.clear()
        async with raw_peer(running.port) as peer:
            await peer.send(call(1, SERVICE + "Echo"))
            assert await peer.status(1) == b"0"
    assert seen == []
    assert "Traceback" not in caplog.text
