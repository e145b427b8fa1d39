"""The waiting messages that are due next, in memory: sorted pieces, each a few times longer than
the next, so that adding costs few merges however many there are. On the loop.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from aerobee.broker.timers.pending import Key, Rows, in_order, key_of, no_rows, rank
from aerobee.broker.timers.progress import DoneView

_RATIO: Final = 4


class _Piece:
    """Sorted rows, and their range of offsets."""

    __slots__ = ("offset_max", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.offset_max = int(rows["offset"].max()) if len(rows) else -1


class NearTable:
    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._unsorted: list[Rows] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: Rows) -> None:
        """In any order; they are sorted when they are read."""
        if len(rows):
            self._unsorted.append(rows)
            self._count += len(rows)

    def select(self, low: Key, high: Key, *, offset_low: int, offset_end: int, limit: int) -> Rows:
        """The first rows, at most `limit`, with keys in (low, high] and offsets in
        [offset_low, offset_end)."""
        self._sort()
        found: list[Rows] = []
        for piece in self._pieces:
            if piece.offset_max >= offset_low:
                begin, end = rank(piece.rows, low), rank(piece.rows, high)
                found += _chosen(piece.rows[begin:end], offset_low, offset_end, limit)
        return in_order(found)[:limit] if found else no_rows()

    def drop_done(self, view: DoneView) -> None:
        self._sort()
        pieces = [piece.rows[view.pending(piece.rows)] for piece in self._pieces]
        self._pieces = [_Piece(rows) for rows in pieces if len(rows)]
        self._count = sum(len(piece.rows) for piece in self._pieces)

    def cut(self, count: int) -> Key | None:
        """Drop all but the first `count`; returns the last key that stays, None if all stay."""
        if self._count <= count:
            return None
        self._sort()
        rows = in_order([piece.rows for piece in self._pieces])
        self._pieces = [_Piece(rows[:count].copy())]
        self._count = count
        return key_of(rows[count - 1])

    def _sort(self) -> None:
        if not self._unsorted:
            return
        self._pieces.append(_Piece(in_order(self._unsorted)))
        self._unsorted = []
        pieces = self._pieces
        while len(pieces) > 1 and len(pieces[-1].rows) * _RATIO > len(pieces[-2].rows):
            last = pieces.pop()
            pieces[-1] = _Piece(in_order([pieces[-1].rows, last.rows]))


def _chosen(rows: Rows, offset_low: int, offset_end: int, limit: int) -> list[Rows]:
    """The first of sorted rows whose offsets are wanted; examines no more than necessary."""
    found: list[Rows] = []
    first, count, step = 0, 0, 2 * limit
    while first < len(rows):
        some = rows[first : first + step]
        first, step = first + step, 4 * step
        offsets = some["offset"]
        wanted = (offsets >= offset_low) & (offsets < offset_end)
        if wanted.any():
            found.append(some[np.flatnonzero(wanted)[: limit - count]])
            count += len(found[-1])
            if count >= limit:
                break
    return found
