"""Tags codes that Apache's broker stores beside a queue: the entry then contains an address."""

from __future__ import annotations

from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.files import sequence_of
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.open_file import OpenFiles
from aerobee.offset_audit.sources.store.plan import QueuePiece
from aerobee.offset_audit.sources.store.ranges_digest import Int64Array
from aerobee.store.format.consume_queue_ext import EXT_ADDRESS_MAX, ext_position

_FOLDER: Final = "consumequeue_ext"
_TAGS_AT: Final = 2
"""In a unit."""


def has_ext_tags(store: StoreFolder) -> bool:
    return store.path(_FOLDER).is_dir()


class ExtTags:
    """Replaces addresses by tags codes in a store that has them."""

    def __init__(self, store: StoreFolder) -> None:
        self._store = store
        self._exists = has_ext_tags(store)

    def tags_codes(self, piece: QueuePiece, codes: Int64Array) -> Int64Array:
        """`codes` with each address replaced; those that point nowhere stay."""
        rows = np.flatnonzero(codes <= EXT_ADDRESS_MAX)
        if not self._exists or not len(rows):
            return codes
        found = codes.copy()
        folder = self._store.path(_FOLDER, piece.topic, str(piece.queue_id))
        with OpenFiles(sequence_of(folder.as_posix())) as units:
            for row, address in zip(rows.tolist(), codes[rows].tolist(), strict=True):
                data = units.read(ext_position(address) + _TAGS_AT, 8)
                if len(data) == 8:
                    found[row] = int.from_bytes(data, "big", signed=True)
        return found
