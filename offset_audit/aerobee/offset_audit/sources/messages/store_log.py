"""The commit log of a store, read at positions across its segments."""

from __future__ import annotations

from bisect import bisect_right
from types import TracebackType
from typing import Self

import numpy as np

from aerobee.offset_audit.sources.store.files import log_segments
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.store.format.record_arrays import BoolArray, Int64Array


class StoreLog:
    """The segments as they were when this was created; each is opened when it is first read."""

    def __init__(self, store: StoreFolder) -> None:
        self._segments = log_segments(store)
        self._bases = [segment.base for segment in self._segments]
        self._open: dict[int, OpenFile] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    @property
    def begin(self) -> int:
        """The first existing position; without any segment, after every message."""
        return self._bases[0] if self._bases else 1 << 63

    @property
    def end(self) -> int:
        """After the last existing position; without any segment, 0."""
        return self._segments[-1].end if self._segments else 0

    def segments_of(self, positions: Int64Array) -> Int64Array:
        """The index of the segment that would contain each position, -1 before the first."""
        return np.searchsorted(np.array(self._bases, np.int64), positions, side="right") - 1

    def holds(self, positions: Int64Array, sizes: Int64Array) -> BoolArray:
        """Whether the bytes [position, position + size) are in one existing segment."""
        if not self._segments:
            return np.zeros(len(positions), np.bool_)
        indexes = self.segments_of(positions)
        ends = np.array([segment.end for segment in self._segments], np.int64)
        held = (indexes >= 0) & (positions <= ends[np.maximum(indexes, 0)] - sizes)
        return np.asarray(held, np.bool_)

    def read(self, position: int, size: int) -> bytes:
        """Fewer bytes at a segment's end, or if it has been deleted."""
        index = bisect_right(self._bases, position) - 1
        if index < 0:
            return b""
        file = self._open.get(index)
        if file is None:
            try:
                file = self._open[index] = OpenFile(self._segments[index])
            except FileNotFoundError:
                return b""
        return file.read(position, position + size)
