"""The file `config/timercheck`: how far Apache's timer has read, written and delivered.

   0           8             16             24             32      40        48        56    4096
   | read time | log flushed | queue offset | master's one | state | changed | counter | 0 ... 0 |
   | ms        | up to       | in the timer topic          | data version                |

One page, big-endian i64 numbers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Self

TIMER_CHECKPOINT_SIZE: Final = 4096

_LAYOUT: Final = struct.Struct(">qqqqqqq")
# Releases before the data version was added have only the first four.
_SIZE_MIN: Final = 32


class TimerCheckpointIllegal(ValueError):
    """Too few bytes for a timer checkpoint."""


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """Times are Unix ms."""

    last_read_time_ms: int = 0
    last_log_flushed_position: int = 0
    last_queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """The whole file, 4096 bytes."""
        return _LAYOUT.pack(
            self.last_read_time_ms,
            self.last_log_flushed_position,
            self.last_queue_offset,
            self.master_queue_offset,
            self.state_version,
            self.changed_ms,
            self.counter,
        ).ljust(TIMER_CHECKPOINT_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The checkpoint in a file's bytes. Raises TimerCheckpointIllegal below 32 bytes."""
        if len(data) < _SIZE_MIN:
            raise TimerCheckpointIllegal(
                f"the timer checkpoint has {len(data)} bytes, at least {_SIZE_MIN} expected; "
                "delete it to have the timer log read from its start"
            )
        return cls(*_LAYOUT.unpack(data[: _LAYOUT.size].ljust(_LAYOUT.size, b"\0")))
