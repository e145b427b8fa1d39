"""The file `epochFileCheckpoint`: which part of the log was written in which master's epoch.

    3                   how many entries follow
    1951541199          CRC-32 of all lines below with their line ends, & 0x7FFFFFFF; 0: unchecked
    1-0                 epoch, and the log offset of its first byte; oldest first
    2-1073742848
    5-1073750000

Text with `\\n` after each line. Epochs rise and offsets do not fall; each epoch ends where the next
begins, and the last one is open.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final
from zlib import crc32

EPOCH_FILE: Final = "epochFileCheckpoint"

_CRC_MASK: Final = 0x7FFF_FFFF

EpochEntry = tuple[int, int]


class EpochFileIllegal(ValueError):
    """Bytes that are not a complete epoch file."""


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """The whole file for (epoch, first log offset) pairs, oldest first."""
    lines = [b"%d-%d\n" % (epoch, start) for epoch, start in entries]
    body = b"".join(lines)
    return b"%d\n%d\n%b" % (len(lines), crc32(body) & _CRC_MASK, body)


def decode_epochs(data: bytes) -> list[EpochEntry]:
    """The pairs, oldest first. Raises EpochFileIllegal."""
    count_line, _, rest = data.partition(b"\n")
    crc_line, _, body = rest.partition(b"\n")
    count, crc = _number(count_line), _number(crc_line)
    if crc and crc != crc32(body) & _CRC_MASK:
        raise EpochFileIllegal("the epoch file's lines do not match their checksum")
    entries = [_entry(line) for line in body.splitlines() if line]
    if len(entries) != count:
        raise EpochFileIllegal(f"the epoch file has {len(entries)} entries, not {count}")
    for earlier, later in pairwise(entries):
        if earlier[0] >= later[0] or earlier[1] > later[1]:
            raise EpochFileIllegal(f"epoch {later[0]} does not follow epoch {earlier[0]}")
    return entries


def _entry(line: bytes) -> EpochEntry:
    epoch, dash, start = line.partition(b"-")
    if not dash:
        raise EpochFileIllegal(f"the line {line!r:.40} is not an epoch with its start")
    return _number(epoch), _number(start)


def _number(text: bytes) -> int:
    text = text.strip()
    if not text.isdigit() or len(text) > 19:
        raise EpochFileIllegal(f"{text!r:.40} is not a number")
    return int(text)
