"""Pieces of one buffer as Arrow arrays: bodies, names, values, without a loop over records.

Arrow is told that the buffer contains both the wanted pieces and what is between them, and then
takes every second one, which copies just these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aerobee.store.format.record_arrays import BoolArray, Int64Array

Buffer = bytes | bytearray | memoryview
"""Of bytes."""


def gather(buffer: Buffer, starts: Int64Array, ends: Int64Array, *, is_text: bool = False) -> Any:
    """The bytes [starts[n], ends[n]) of a buffer below 2 GiB, as binary or as string; fast if
    pieces rise and do not overlap.

    Text must be UTF-8; it is not checked.
    """
    kind = pa.string() if is_text else pa.binary()
    count = len(starts)
    if count == 0:
        return pa.array([], kind)
    if (starts[1:] < ends[:-1]).any():  # a record that two queues share
        view = memoryview(buffer)
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return pa.array([bytes(view[start:end]) for start, end in spans], kind)
    borders = np.empty(2 * count, np.int32)
    borders[::2] = starts
    borders[1::2] = ends
    alternating = pa.Array.from_buffers(
        kind, 2 * count - 1, [None, pa.py_buffer(borders), pa.py_buffer(buffer)]
    )
    return alternating.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32)))


def content(array: Any) -> tuple[npt.NDArray[np.uint8], Int64Array]:
    """All bytes of a gathered array, end to end, and the start of each piece; plus the final
    end."""
    count = len(array)
    if count == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = array.buffers()
    borders = np.frombuffer(offsets, np.int32)[array.offset : array.offset + count + 1]
    if data is None:
        return np.zeros(0, np.uint8), borders.astype(np.int64)
    return np.frombuffer(data, np.uint8), borders.astype(np.int64)


def spread(values: Any, records: Int64Array, count: int) -> Any:
    """Values of some of `count` records, at their records' places; null elsewhere."""
    if len(records) == count:
        return values
    index = np.zeros(count, np.int32)
    index[records] = np.arange(len(records))
    is_null = np.ones(count, np.bool_)
    is_null[records] = False
    return values.take(pa.array(index, mask=is_null))


def is_last_of_record(records: Int64Array) -> BoolArray:
    """Which of some pieces, ordered by record, is the last one of its record."""
    last = np.ones(len(records), np.bool_)
    np.not_equal(records[1:], records[:-1], out=last[:-1])
    return last


def constant(value: str, count: int) -> Any:
    """The same text for each record."""
    text = value.encode()
    borders = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(text * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def hex_text(rows: npt.NDArray[np.uint8]) -> Any:
    """Each row of bytes as upper-case hexadecimal text."""
    digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    count, width = rows.shape
    text = np.empty((count, 2 * width), np.uint8)
    text[:, ::2] = digits[rows >> 4]
    text[:, 1::2] = digits[rows & 15]
    borders = np.arange(count + 1, dtype=np.int32) * (2 * width)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(borders), pa.py_buffer(text)]
    )
