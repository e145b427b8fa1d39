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


# The year 2248, as in the checks of the store's own checkpoint.
_TIME_END_MS: Final = 1 << 43


class TimerCheckpointIllegal(ValueError):
    """Bytes that no timer wrote as its checkpoint: too few, or with impossible times."""


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
        """The checkpoint in a file's bytes.

        Raises:
            TimerCheckpointIllegal: less than 32 bytes, or impossible values.
        """
        if len(data) < _SIZE_MIN:
            raise TimerCheckpointIllegal(
                f"the timer checkpoint has {len(data)} bytes, at least {_SIZE_MIN} expected; "
                "delete it to have the timer log read from its start"
            )
        found = cls(*_LAYOUT.unpack(data[: _LAYOUT.size].ljust(_LAYOUT.size, b"\0")))
        times = (found.last_read_time_ms, found.changed_ms)
        if min(times) < 0 or max(times) >= _TIME_END_MS or found.last_queue_offset < 0:
            raise TimerCheckpointIllegal(
                f"the timer checkpoint has impossible values: times {times[0]} and {times[1]}, "
                f"queue offset {found.last_queue_offset}; delete it to have the timer log read "
                "from its start"
            )
        return found
