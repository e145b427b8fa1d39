"""The file `consumequeue.ends` of our broker: what each queue held at the last checkpoint, so that
a queue whose files were cut or lost is not mistaken for a shorter one.

It is valid only together with the checkpoint that it was written with. A sequence of blocks, each
complete or missing: see docs/internals/store-format.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.store.format.checkpoint import Checkpoint, CheckpointIllegal

_HEAD: Final = struct.Struct(">4sI")
_STAMP: Final = struct.Struct(">qqqII")
_ROW: Final = struct.Struct(">IIqqqqqq")
_MAGIC: Final = b"AQE1"


@dataclass(frozen=True, slots=True)
class KnownEnd:
    """Of one queue: its first message and that message's log position, or -1; and after its
    last."""

    min_offset: int
    min_position: int
    end: int


def read_checkpoint(store: StoreFolder) -> Checkpoint | None:
    """None where there is none that can be read."""
    try:
        return Checkpoint.decode(store.path("checkpoint").read_bytes())
    except (OSError, CheckpointIllegal):
        return None


def read_known_ends(store: StoreFolder) -> Mapping[tuple[str, int], KnownEnd]:
    """By topic and queue id; empty if the file is not valid."""
    checkpoint = read_checkpoint(store)
    try:
        data = store.path("consumequeue.ends").read_bytes()
    except OSError:
        return {}
    if checkpoint is None:
        return {}
    stamp = (
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.confirm_physical_offset,
    )
    names: list[tuple[str, int]] = []
    ends: dict[int, KnownEnd] = {}
    counts = False
    try:
        for written_with, block_names, rows in _blocks(data):
            names += block_names
            ends.update(rows)
            counts |= written_with == stamp
    except ValueError:
        return {}
    if not counts or any(number >= len(names) for number in ends):
        return {}
    return {names[number]: end for number, end in ends.items()}


_Block = tuple[tuple[int, int, int], list[tuple[str, int]], dict[int, KnownEnd]]


def _blocks(data: bytes) -> Iterator[_Block]:
    """The complete blocks at the start of the file. Raises ValueError for impossible names."""
    at = 0
    while at + _HEAD.size + _STAMP.size <= len(data):
        magic, crc = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        physic, logics, flushed, names_bytes, row_count = _STAMP.unpack_from(data, at)
        names_at = at + _STAMP.size
        rows_at = names_at + names_bytes
        end = rows_at + row_count * _ROW.size
        if magic != _MAGIC or end > len(data) or crc32(data[at:end]) != crc:
            return
        texts = data[names_at:rows_at].decode().split("\0")[:-1]
        rows = {
            number: KnownEnd(min_offset, min_position, queue_end)
            for number, _, _, min_offset, min_position, _, queue_end, _ in _ROW.iter_unpack(
                data[rows_at:end]
            )
        }
        yield (physic, logics, flushed), [_name(text) for text in texts], rows
        at = end


def _name(text: str) -> tuple[str, int]:
    queue_id, _, topic = text.partition("/")
    return topic, int(queue_id)
