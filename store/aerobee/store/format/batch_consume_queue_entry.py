"""The 46-byte entry of batch consume queues: one record that holds several messages.

   0                 8      12          20           28          36     38          42         46
   | physical offset | size | tags code | store time | base      | size | compacted | reserved |
   | of the record   |      |           | of it      | queue     | of   | offset,   |          |
   |                 |      |           |            | offset    | batch| -1        |          |

Apache keeps them in `batchconsumequeue/<topic>/<queue>/` for topics of the kind BatchCQ. Entry n
does not belong to queue offset n: readers search by base offset. Big-endian numbers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

BATCH_ENTRY_SIZE: Final = 46
BATCH_ENTRY_DTYPE: Final = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("base_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
NOT_COMPACTED: Final = -1

_ENTRY: Final = struct.Struct(">qiqqqhii")


class BatchEntriesCorrupt(ValueError):
    """Bytes that are not whole batch consume queue entries."""


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """Where a record of `batch_size` messages is; their offsets start at `base_offset`."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    base_offset: int
    batch_size: int

    @property
    def end_offset(self) -> int:
        """The queue offset after its last message."""
        return self.base_offset + self.batch_size

    def encode(self) -> bytes:
        """Its 46 bytes."""
        return _ENTRY.pack(
            self.physical_offset,
            self.size,
            self.tags_code,
            self.store_timestamp_ms,
            self.base_offset,
            self.batch_size,
            NOT_COMPACTED,
            0,
        )


def unpack_batch_entries(
    data: bytes | bytearray | memoryview,
) -> npt.NDArray[np.void]:
    """Entries end to end, as a structured array.

    Raises BatchEntriesCorrupt unless `data` is a whole number of entries.
    """
    if len(data) % BATCH_ENTRY_SIZE:
        raise BatchEntriesCorrupt(
            f"{len(data)} bytes are not a whole number of {BATCH_ENTRY_SIZE}-byte entries"
        )
    return np.frombuffer(data, BATCH_ENTRY_DTYPE)


def scan_batch_entries(data: bytes | bytearray | memoryview) -> list[BatchEntry]:
    """The valid entries at the start of the bytes, up to zeros or the first invalid one."""
    entries = unpack_batch_entries(data[: len(data) - len(data) % BATCH_ENTRY_SIZE])
    valid = (
        (entries["physical_offset"] >= 0)
        & (entries["size"] > 0)
        & (entries["base_offset"] >= 0)
        & (entries["batch_size"] > 0)
    )
    usable = entries[: len(valid) if valid.all() else int(valid.argmin())]
    columns = (
        usable[name].tolist()
        for name in (
            "physical_offset",
            "size",
            "tags_code",
            "store_timestamp",
            "base_offset",
            "batch_size",
        )
    )
    return [BatchEntry(*fields) for fields in zip(*columns, strict=True)]
