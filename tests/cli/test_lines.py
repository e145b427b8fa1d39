"""Lines from files and pipes: whole, in order, as soon as they are there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from aerobee.cli import message_lines
from aerobee.cli.message_lines import read_lines


async def all_lines(descriptor: int) -> list[bytes]:
    return [line async for batch in read_lines(descriptor) for line in batch]


async def test_a_file_gives_its_lines_without_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\r\n\nlast without an end")
    with path.open("rb") as file:
        assert await all_lines(file.fileno()) == [b"one", b"two", b"", b"last without an end"]


async def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    with path.open("rb") as file:
        assert await all_lines(file.fileno()) == []


async def test_a_line_longer_than_a_chunk_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "long"
    long_line = b"x" * (3 * message_lines.CHUNK_BYTES + 17)
    path.write_bytes(long_line + b"\nshort\n")
    with path.open("rb") as file:
        assert await all_lines(file.fileno()) == [long_line, b"short"]


async def test_a_slow_pipe_gives_each_line_at_once() -> None:
    reading, writing = os.pipe()
    try:
        given_lines = read_lines(reading)
        for line in (b"first", b"second"):
            os.write(writing, line + b"\nunfinished ")
            async with asyncio.timeout(5):
                batch = await anext(given_lines)
            assert batch[-1].endswith(line)
        os.close(writing)
        writing = -1
        assert [batch async for batch in given_lines] == [[b"unfinished "]]
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)


async def test_waiting_for_a_pipe_can_be_cancelled() -> None:
    reading, writing = os.pipe()
    try:
        task = asyncio.ensure_future(all_lines(reading))
        await asyncio.sleep(0.01)
        task.cancel()
        async with asyncio.timeout(5):
            results = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
    finally:
        os.close(reading)
        os.close(writing)


@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), max_size=20))
def test_what_was_joined_is_split_again(parts: list[bytes]) -> None:
    content = b"".join(part + b"\n" for part in parts)
    reading, writing = os.pipe()
    try:
        os.write(writing, content)
        os.close(writing)
        found = asyncio.run(all_lines(reading))
    finally:
        os.close(reading)
    assert found == [part.removesuffix(b"\r") for part in parts]
