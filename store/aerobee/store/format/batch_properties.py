"""The properties of a batch's records: each by itself, and end to end for a search through all.

Most batches are never looked into: that no record asks for anything special is seen in one search,
and no object is made for each record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from aerobee.store.format.properties import VALUE_END
from aerobee.store.format.record_arrays import Int64Array


class BatchProperties(Sequence[bytes]):
    """A sequence of encoded properties."""

    __slots__ = ("_count", "_each", "_joined")

    def __init__(self, each: list[bytes] | None, count: int, joined: bytes | None = None) -> None:
        """Either of them, or both; if `joined` is all there is, each of them has the same size."""
        self._each = each
        self._count = count
        self._joined = joined

    @classmethod
    def of(cls, each: list[bytes]) -> BatchProperties:
        return cls(each, len(each))

    @classmethod
    def at(
        cls, buffer: bytes | bytearray | memoryview, starts: Int64Array, ends: Int64Array
    ) -> BatchProperties:
        """Those at [start, end) of `buffer`, for at least one record."""
        sizes = ends - starts
        size = int(sizes[0])
        if size == 0 or (sizes != size).any():
            view = memoryview(buffer)
            spans = zip(starts.tolist(), ends.tolist(), strict=True)
            return cls.of([bytes(view[start:end]) for start, end in spans])
        rows = np.ndarray((len(buffer) - size + 1,), f"V{size}", buffer, 0, (1,))[starts]
        joined = np.full((len(starts), 1 + size), VALUE_END[0], np.uint8)
        joined[:, 1:] = rows.view(np.uint8).reshape(len(starts), size)
        return cls(None, len(starts), joined.tobytes())

    @property
    def joined(self) -> bytes:
        """All of them, each after the byte that ends a property."""
        if self._joined is None:
            assert self._each is not None, "one of them is given"
            self._joined = VALUE_END + VALUE_END.join(self._each)
        return self._joined

    @property
    def _list(self) -> list[bytes]:
        each = self._each
        if each is None:
            joined = self.joined
            step = len(joined) // self._count
            each = self._each = [
                joined[end - step + 1 : end] for end in range(step, len(joined) + 1, step)
            ]
        return each

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._list)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        return self._list[index]
