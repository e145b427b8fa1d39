"""The file `timerwheel`: one slot per second, a ring of two weeks.

   0           8              16            24      28      32
   | time unit | first in log | last in log | count | magic |       i64, i64, i64, i32, i32

A slot belongs to a time only if its time unit, time / precision, is that time's. The count is the
number of messages put there and not recalled; delivery does not reduce it, so past slots keep
theirs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from aerobee.store.format.delayed_records import PRECISION_MS

SLOT_SIZE: Final = 32
SLOTS_PER_WHEEL: Final = 2 * 7 * 86_400
WHEEL_SIZE: Final = SLOT_SIZE * SLOTS_PER_WHEEL

NO_POSITION: Final = -1

_SLOT: Final = struct.Struct(">qqqii")
SLOT_DTYPE: Final = np.dtype(
    [("unit", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("magic", ">i4")]
)


class TimerWheelCorrupt(ValueError):
    """Bytes that are not a timer wheel."""


@dataclass(frozen=True, slots=True)
class TimerSlot:
    """What one slot holds: positions in the timer log of its first and last record."""

    time_ms: int
    first_position: int
    last_position: int
    count: int
    magic: int = 0


def slot_index(time_ms: int, precision_ms: int = PRECISION_MS) -> int:
    """The index of the slot for a time."""
    return time_ms // precision_ms % SLOTS_PER_WHEEL


def encode_slot(slot: TimerSlot, precision_ms: int = PRECISION_MS) -> bytes:
    """The slot's 32 bytes, for the position `slot_index(slot.time_ms)` times 32."""
    unit = slot.time_ms // precision_ms
    return _SLOT.pack(unit, slot.first_position, slot.last_position, slot.count, slot.magic)


def encode_wheel(slots: Iterable[TimerSlot], precision_ms: int = PRECISION_MS) -> bytes:
    """A whole file with these slots in use."""
    data = bytearray(WHEEL_SIZE)
    for slot in slots:
        at = SLOT_SIZE * slot_index(slot.time_ms, precision_ms)
        data[at : at + SLOT_SIZE] = encode_slot(slot, precision_ms)
    return bytes(data)


def decode_wheel(
    data: bytes | bytearray | memoryview, precision_ms: int = PRECISION_MS
) -> list[TimerSlot]:
    """The slots in use, in file order.

    Raises TimerWheelCorrupt for another length: a wheel has exactly one.
    """
    if len(data) != WHEEL_SIZE:
        raise TimerWheelCorrupt(
            f"a timer wheel has {WHEEL_SIZE} bytes, not {len(data)}: restore it, or remove it "
            "together with the timer log and its checkpoint to have it built again"
        )
    slots = np.frombuffer(data, SLOT_DTYPE)
    used = slots[slots["unit"] != 0]
    columns = (used[name].tolist() for name in ("unit", "first", "last", "count", "magic"))
    return [
        TimerSlot(unit * precision_ms, first, last, count, magic)
        for unit, first, last, count, magic in zip(*columns, strict=True)
    ]
