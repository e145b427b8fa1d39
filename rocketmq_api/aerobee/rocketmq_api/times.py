"""Times and durations of messages as whole milliseconds.

Clients send any 64-bit number of seconds and any 32-bit number of nanoseconds. The results are
exact and unbounded; callers compare them with limits first.
"""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def milliseconds(value: Timestamp | Duration) -> int:
    """Rounded down, so that a time is never late."""
    return value.seconds * 1_000 + value.nanos // 1_000_000


def timestamp(ms: int) -> Timestamp:
    """Of Unix ms in [-2^63, 2^63)."""
    value = Timestamp()
    set_timestamp(value, ms)
    return value


def set_timestamp(value: Timestamp, ms: int) -> None:
    """As `timestamp`, in place; 1970 counts as a time, not as the absence of one."""
    seconds, rest = divmod(ms, 1_000)
    value.SetInParent()
    value.seconds = seconds
    value.nanos = rest * 1_000_000


def duration(ms: int) -> Duration:
    """Of 0 ms or more."""
    seconds, rest = divmod(ms, 1_000)
    return Duration(seconds=seconds, nanos=rest * 1_000_000)
