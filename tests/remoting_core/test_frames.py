"""Frames cut out of what arrives, in whatever pieces."""

from __future__ import annotations

import random
import struct

import pytest

from aerobee.remoting_core.command import Command, Encoding
from aerobee.remoting_core.errors import FrameIllegal
from aerobee.remoting_core.frames import FrameLimits, FrameParser, encode_frame

GOLDEN = bytes.fromhex(
    "000000250100002100690001df0000000700000000000000000000000c0005746f7069630000000154"
)
"""Of Apache's 5.3.3, binary."""


def commands_in(data: bytes, *cuts: int) -> list[Command]:
    parser, found = FrameParser(FrameLimits()), []
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        parser.feed(data[start:end])
        while (command := parser.next_command()) is not None:
            found.append(command)
    assert parser.held_bytes == 0
    return found


def test_a_frame_of_apache_is_read_and_written_again() -> None:
    (command,) = commands_in(GOLDEN)
    assert (command.code, command.fields, command.body) == (105, {"topic": "T"}, b"")
    assert encode_frame(command) == GOLDEN


def test_frames_are_found_wherever_the_bytes_are_cut() -> None:
    chance = random.Random(7)
    sent = [
        Command(number, {"n": str(number)}, bytes(chance.randrange(200)), encoding=encoding)
        for number, encoding in enumerate((*Encoding, *Encoding, *Encoding))
    ]
    data = b"".join(map(encode_frame, sent))
    assert commands_in(data) == sent
    assert commands_in(data, *range(1, len(data))) == sent
    for _ in range(50):
        assert commands_in(data, *sorted(chance.sample(range(1, len(data)), 9))) == sent


def test_a_body_is_taken_as_it_is() -> None:
    body = random.Random(1).randbytes(1 << 20)
    (command,) = commands_in(encode_frame(Command(10, body=body)), 100_000, 600_000)
    assert command.body == body


@pytest.mark.parametrize("length", [-1, 0, 3, (16 << 20) + 1, 0x50524920, (1 << 31) - 1])
def test_an_impossible_length_is_refused_by_its_first_four_bytes(length: int) -> None:
    """0x50524920 is `PRI `, with which HTTP/2 begins."""
    parser = FrameParser(FrameLimits())
    parser.feed(struct.pack(">i", length))
    with pytest.raises(FrameIllegal):
        parser.next_command()


def test_a_long_header_is_refused_before_it_has_arrived() -> None:
    limits = FrameLimits()
    parser = FrameParser(limits)
    parser.feed(struct.pack(">iI", 1 << 20, limits.header_bytes_max + 1))
    with pytest.raises(FrameIllegal, match="header"):
        parser.next_command()


def test_a_header_longer_than_its_frame_is_refused() -> None:
    parser = FrameParser(FrameLimits())
    parser.feed(struct.pack(">iI", 10, 7))
    with pytest.raises(FrameIllegal, match="header"):
        parser.next_command()


def test_what_was_read_is_not_kept() -> None:
    parser, frame = FrameParser(FrameLimits()), encode_frame(Command(10, body=bytes(1_000)))
    for _ in range(1_000):
        parser.feed(frame + frame[:100])
        assert parser.next_command() is not None
        assert parser.held_bytes == 100
        parser.feed(frame[100:])
        assert parser.next_command() is not None
        assert parser.held_bytes == 0
