"""The commit log of a store, read at positions across its segments."""

from __future__ import annotations

import numpy as np

from aerobee.offset_audit.sources.store.files import log_segments
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.open_file import OpenFiles
from aerobee.store.format.record_arrays import BoolArray, Int64Array


class StoreLog(OpenFiles):
    """The segments as they were when this was created."""

    def __init__(self, store: StoreFolder) -> None:
        super().__init__(log_segments(store))

    @property
    def begin(self) -> int:
        """The first existing position; without any segment, after every message."""
        return self.bases[0] if self.bases else 1 << 63

    @property
    def end(self) -> int:
        """After the last existing position; without any segment, 0."""
        return self.files[-1].end if self.files else 0

    def segments_of(self, positions: Int64Array) -> Int64Array:
        """The index of the segment that would contain each position, -1 before the first."""
        return np.searchsorted(np.array(self.bases, np.int64), positions, side="right") - 1

    def holds(self, positions: Int64Array, sizes: Int64Array) -> BoolArray:
        """Whether the bytes [position, position + size) are in one existing segment."""
        if not self.files:
            return np.zeros(len(positions), np.bool_)
        indexes = self.segments_of(positions)
        ends = np.array([segment.end for segment in self.files], np.int64)
        held = (indexes >= 0) & (positions <= ends[np.maximum(indexes, 0)] - sizes)
        return np.asarray(held, np.bool_)
