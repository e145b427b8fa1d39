"""What the log has but queue files may not have yet: everything after the checkpoint of a broker
that is running, or was killed. The next start would put it into the queues.

Records of transactions that go into no queue are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.known_ends import read_checkpoint
from aerobee.offset_audit.sources.store.log_chunks import LogChunk, log_chunks
from aerobee.offset_audit.sources.store.log_lookup import LogLookup
from aerobee.offset_audit.sources.store.plan import LogPiece
from aerobee.store.format.record_arrays import Int64Array
from aerobee.store.format.record_layout import (
    SYSFLAG_TRANSACTION_COMMIT,
    SYSFLAG_TRANSACTION_MASK,
    SYSFLAG_TRANSACTION_NONE,
)
from aerobee.store.format.tags import TagsCodes

ABORT_FILE: Final = "abort"


@dataclass(frozen=True, slots=True)
class QueueTail:
    """Messages of one queue at the log's end, in log order."""

    offsets: Int64Array
    positions: Int64Array
    tags_codes: Int64Array

    @property
    def min_offset(self) -> int:
        return int(self.offsets.min())

    @property
    def max_offset(self) -> int:
        return int(self.offsets.max()) + 1

    @property
    def last_position(self) -> int:
        return int(self.positions[-1])

    def position_of(self, offset: int) -> int | None:
        """Where the first message at or after `offset` is."""
        found = self.offsets >= offset
        return int(self.positions[int(np.argmax(found))]) if found.any() else None


def was_closed(store: StoreFolder) -> bool:
    """Whether the last user stopped cleanly."""
    return not store.path(ABORT_FILE).exists()


def entries_until_ms(store: StoreFolder, log: LogLookup) -> int | None:
    """Messages stored until then are in queue files; None: unknown."""
    if was_closed(store):
        return log.last_store_ms()
    checkpoint = read_checkpoint(store)
    # Some messages of the very last moment may be missing.
    return None if checkpoint is None else max(0, checkpoint.logics_msg_timestamp - 1)


def keys_until_ms(store: StoreFolder, log: LogLookup) -> int | None:
    """Messages stored until then are in index files."""
    if was_closed(store):
        return log.last_store_ms()
    checkpoint = read_checkpoint(store)
    return None if checkpoint is None else max(0, checkpoint.index_msg_timestamp - 1)


def read_tail(
    store: StoreFolder, log: LogLookup, tags: TagsCodes | None = None
) -> dict[tuple[str, int], QueueTail]:
    """By topic and queue id; empty for a store that was closed. `tags`: the store's delay levels,
    for the tags codes of waiting messages."""
    if was_closed(store) or not log.files:
        return {}
    checkpoint = read_checkpoint(store)
    since_ms = 0 if checkpoint is None else checkpoint.min_timestamp()
    parts: dict[tuple[str, int], list[QueueTail]] = {}
    for segment in _segments_since(log, since_ms):
        piece = LogPiece(
            store, segment, segment.base, segment.end, is_open=segment is log.files[-1]
        )
        for chunk in log_chunks(piece, tags=tags or TagsCodes()):
            _add(parts, chunk, since_ms)
    return {
        name: QueueTail(
            np.concatenate([part.offsets for part in of_queue]),
            np.concatenate([part.positions for part in of_queue]),
            np.concatenate([part.tags_codes for part in of_queue]),
        )
        for name, of_queue in parts.items()
    }


def _segments_since(log: LogLookup, since_ms: int) -> Sequence[StoreFile]:
    """Those with messages that may have been stored at `since_ms` or later."""
    first = len(log.files) - 1
    while first > 0:
        stored_ms = log.first_store_ms(log.files[first])
        if stored_ms is not None and stored_ms < since_ms:
            break
        first -= 1
    return log.files[max(0, first) :]


def _add(
    parts: dict[tuple[str, int], list[QueueTail]],
    chunk: LogChunk,
    since_ms: int,
) -> None:
    records = chunk.records
    kinds = records.sys_flags & SYSFLAG_TRANSACTION_MASK
    chosen = (kinds == SYSFLAG_TRANSACTION_NONE) | (kinds == SYSFLAG_TRANSACTION_COMMIT)
    chosen &= records.store_timestamps >= since_ms
    index = np.flatnonzero(chosen)
    if not len(index):
        return
    names = records.topic_codes[index] << 32 | records.queue_ids[index]
    order = np.argsort(names, kind="stable")
    index, names = index[order], names[order]
    starts = np.flatnonzero(np.diff(names, prepend=-1))
    for of_queue in np.split(index, starts[1:]):
        first = int(of_queue[0])
        name = records.topic_table[int(records.topic_codes[first])], int(records.queue_ids[first])
        parts.setdefault(name, []).append(
            QueueTail(
                records.queue_offsets[of_queue],
                records.positions[of_queue] + chunk.position,
                records.tags_codes[of_queue],
            )
        )
