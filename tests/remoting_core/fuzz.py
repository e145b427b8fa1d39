"""Mutated frames against a parser and a server: whatever comes, only FrameIllegal, and no more
memory than was promised.

    python -m tests.remoting_core.fuzz --frames 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator

from aerobee.remoting_core.command import Command, Encoding
from aerobee.remoting_core.errors import FrameIllegal, HeaderIllegal
from aerobee.remoting_core.frames import FrameLimits, FrameParser, encode_frame
from aerobee.remoting_core.headers import decode_header

_WORDS = ("topic", "consumerGroup", "a", "i", "queueId", "\x01", "é", "中", "", "x" * 300, "-1")
_NOISE = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\4", b"{", b'"', b"\\u",
          b"null", b"[[[[", b"9" * 40, b"1e999", b"\xc3", b"PRI ", b"\x16\x03\x01")  # fmt: skip
LIMITS = FrameLimits(frame_bytes_max=1 << 20, header_bytes_max=16 << 10)


def honest(chance: random.Random) -> bytes:
    """Some frames of a lively peer."""
    return b"".join(
        encode_frame(
            Command(
                chance.choice((10, 11, 34, 105, 310)),
                {chance.choice(_WORDS): chance.choice(_WORDS) for _ in range(chance.randrange(6))},
                chance.randbytes(chance.randrange(60)),
                opaque=chance.randrange(1 << 31),
                flag=chance.randrange(4),
                remark=chance.choice(_WORDS),
                encoding=chance.choice((Encoding.JSON, Encoding.BINARY)),
            )
        )
        for _ in range(chance.randrange(1, 4))
    )


def changed(data: bytes, chance: random.Random) -> bytes:
    """Cut, repeated, flipped, filled with noise, or left alone."""
    found = bytearray(data)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(5):
            case 0:
                del found[at : at + chance.randrange(1, 30)]
            case 1:
                found[at:at] = chance.choice(_NOISE)
            case 2:
                noise = chance.choice(_NOISE)
                found[at : at + len(noise)] = noise
            case 3 if at < len(found):
                found[at] ^= 1 << chance.randrange(8)
            case _:
                found[at:at] = found[: chance.randrange(len(found) + 1)]
    return bytes(found)


def pieces(data: bytes, chance: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = chance.choice((1, 4, 7, 64, len(data)))
        yield data[at : at + size]
        at += size


def frame_case(seed: int) -> str:
    """What went wrong with one stream; empty: nothing."""
    chance = random.Random(seed)
    data = changed(honest(chance), chance)
    parser = FrameParser(LIMITS)
    try:
        for piece in pieces(data, chance):
            parser.feed(piece)
            while (command := parser.next_command()) is not None:
                encode_frame(command)
                if parser.held_bytes > LIMITS.frame_bytes_max + len(data):
                    return f"seed {seed}: {parser.held_bytes} bytes are held"
    except FrameIllegal:
        pass
    except Exception as error:
        return f"seed {seed}: {error!r} of {data!r}"
    return ""


def header_case(seed: int) -> str:
    """The same with a header alone, which is reached more often."""
    chance = random.Random(seed)
    encoding = chance.choice((Encoding.JSON, Encoding.BINARY))
    frame = encode_frame(Command(10, {"topic": "T", "é": "中" * 9}, encoding=encoding, remark="r"))
    data = changed(frame[8:], chance)
    try:
        decode_header(encoding, data)
    except HeaderIllegal:
        pass
    except Exception as error:
        return f"seed {seed}: {error!r} of {data!r}"
    return ""


def campaign(frames: int, headers: int, first_seed: int) -> list[str]:
    """What went wrong; a seed says how to see it again."""
    found = [frame_case(first_seed + number) for number in range(frames)]
    found += [header_case(first_seed + number) for number in range(headers)]
    return [each for each in found if each]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--headers", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = campaign(options.frames, options.headers, options.seed)
    print("\n".join(found) or "nothing escaped")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
