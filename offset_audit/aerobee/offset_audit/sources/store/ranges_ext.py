"""Tags codes that Apache's broker stores beside a queue: the entry then contains an address.

A unit of `consumequeue_ext/TOPIC/QUEUE/` is: size i16, tags code i64, store time i64, length of a
bitmap i16, the bitmap. Its address is its place in the files there, less 2^63.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.offset_audit.sources.store.plan import QueuePiece
from aerobee.offset_audit.sources.store.ranges_digest import Int64Array
from aerobee.store.format.names import is_file_name

_FOLDER: Final = "consumequeue_ext"
# Nothing else is that low.
_ADDRESS_MAX: Final = -(1 << 31) - 1
_TAGS_AT: Final = 2
_READ_BYTES: Final = 1 << 20


def has_ext_tags(store: StoreFolder) -> bool:
    return store.path(_FOLDER).is_dir()


class ExtTags:
    """Replaces addresses by tags codes in a store that has them."""

    def __init__(self, store: StoreFolder) -> None:
        self._store = store
        self._exists = has_ext_tags(store)

    def tags_codes(self, piece: QueuePiece, codes: Int64Array) -> Int64Array:
        """`codes` with each address replaced; those that point nowhere stay."""
        if not self._exists:
            return codes
        rows = np.flatnonzero(codes <= _ADDRESS_MAX)
        if not len(rows):
            return codes
        places = (codes[rows].astype(np.uint64) ^ np.uint64(1 << 63)).astype(np.int64)
        order = np.argsort(places, kind="stable")
        found = codes.copy()
        reader = _Units(self._store.path(_FOLDER, piece.topic, str(piece.queue_id)).as_posix())
        for row, place in zip(rows[order].tolist(), places[order].tolist(), strict=True):
            code = reader.tags_code_at(place)
            if code is not None:
                found[row] = code
        reader.close()
        return found


class _Units:
    """Reads units at rising places."""

    def __init__(self, folder: str) -> None:
        names = sorted(filter(is_file_name, os.listdir(folder) if os.path.isdir(folder) else ()))
        paths = [os.path.join(folder, name) for name in names]
        self._files = [
            StoreFile(path, int(name), os.path.getsize(path))
            for path, name in zip(paths, names, strict=True)
        ]
        self._bases = [file.base for file in self._files]
        self._open: OpenFile | None = None
        self._data = b""
        self._data_at = 0

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def tags_code_at(self, place: int) -> int | None:
        at = place + _TAGS_AT
        if not self._data_at <= at <= self._data_at + len(self._data) - 8:
            index = bisect_right(self._bases, at) - 1
            if index < 0:
                return None
            file = self._files[index]
            if self._open is None or self._open.base != file.base:
                self.close()
                self._open = OpenFile(file)
            self._data = self._open.read(at, min(at + _READ_BYTES, file.end))
            self._data_at = at
        start = at - self._data_at
        data = self._data[start : start + 8]
        return int.from_bytes(data, "big", signed=True) if len(data) == 8 else None
