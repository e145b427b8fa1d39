"""Lines of a file, a pipe or a terminal, without blocking the event loop and without delay.

A line is given as soon as it is there, so a slow pipe is a slow stream of messages. Reading a
terminal or a pipe waits in the event loop, never in a thread, so that Ctrl-C ends it at once.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator

CHUNK_BYTES = 256 * 1024


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Lists of whole lines without their ends; the last line need not end with one.

    Both `\\n` and `\\r\\n` end a line.
    """
    pending = b""
    chunks = _stream_chunks(descriptor) if _can_wait(descriptor) else _file_chunks(descriptor)
    async for chunk in chunks:
        *lines, pending = (pending + chunk).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if pending:
        yield [pending.removesuffix(b"\r")]


def _can_wait(descriptor: int) -> bool:
    """Whether the kernel can tell when there is something to read; regular files always have."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


async def _file_chunks(descriptor: int) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(os.read, descriptor, CHUNK_BYTES):
        yield chunk


async def _stream_chunks(descriptor: int) -> AsyncIterator[bytes]:
    while True:
        await _wait_readable(descriptor)
        try:
            chunk = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            continue
        if not chunk:
            return
        yield chunk


async def _wait_readable(descriptor: int) -> None:
    # Watched only while wanted: data that waits for a slow reader must not keep the loop busy.
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
