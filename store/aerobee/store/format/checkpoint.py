"""The checkpoint file: up to which time the log and derived files are certainly on disk.

   0        8        16       24       32       40          4096
   | log ts | cq ts  | idx ts | master | confirm | 0 ... 0  |

One page, big-endian i64 numbers; only these five are used. It may be stale, never ahead.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Self

CHECKPOINT_SIZE: Final = 4096

# Recovery starts this much earlier than the checkpoint says: timestamps of neighbouring records
# may step back a little.
CHECKPOINT_MARGIN_MS: Final = 3_000

_LAYOUT: Final = struct.Struct(">qqqqq")
# Releases before 5.0 have only the timestamps.
_TIMESTAMPS_SIZE: Final = 24


class CheckpointIllegal(ValueError):
    """Bytes too short to be a checkpoint file."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Store timestamps (Unix ms) up to which data has been flushed, and two log offsets."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0

    def encode(self) -> bytes:
        """The whole file, 4096 bytes."""
        return _LAYOUT.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
        ).ljust(CHECKPOINT_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The checkpoint in a file's bytes. Raises CheckpointIllegal below 24 bytes."""
        if len(data) < _TIMESTAMPS_SIZE:
            raise CheckpointIllegal(
                f"the checkpoint file has {len(data)} bytes, at least {_TIMESTAMPS_SIZE} "
                "expected; delete it to have recovery start from the oldest file"
            )
        return cls(*_LAYOUT.unpack(data[: _LAYOUT.size].ljust(_LAYOUT.size, b"\0")))

    def min_timestamp(self, *, index_safe: bool = False) -> int:
        """Records stored before this time (Unix ms) need no recovery; never negative."""
        oldest = min(self.physic_msg_timestamp, self.logics_msg_timestamp)
        if index_safe:
            oldest = min(oldest, self.index_msg_timestamp)
        return max(0, oldest - CHECKPOINT_MARGIN_MS)
