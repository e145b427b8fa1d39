"""The key index of a store: which records a topic's key points to.

Owns: the keys that are not in a file yet, the files with their headers, and the slot table of the
newest file, which it lends to one write at a time. Keys come from the dispatcher in log order and
stay in memory, where searches find them too, until the next checkpoint.

Invariant: every record before `indexed_end` that has a key and is still in the log is found,
whether its keys are in memory or in a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from aerobee.runtime.clock import Clock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.index.index_files import IndexFileInfo
from aerobee.store.engine.index.index_write import IndexWrite, Slots, SlotTable
from aerobee.store.engine.index.key_search import TIMESTAMP_MAX, IndexSnapshot, KeySearch
from aerobee.store.engine.index.pending_keys import PendingKeys
from aerobee.store.engine.index.slot_chain import WantedKey
from aerobee.store.format.index_file import IndexGeometry, IndexKeys, insert, share_out
from aerobee.store.format.index_unhashed import LooseRecord, UnhashedKeys
from aerobee.store.format.java_hash import index_key_hash


class KeyIndex:
    """Loop thread only. Created by recovery."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        config: StoreConfig,
        files: Sequence[IndexFileInfo] = (),
        pending: PendingKeys | None = None,
        *,
        indexed_end: int = 0,
    ) -> None:
        self._disk = disk
        self.clock = clock
        self._geometry = index_geometry(config)
        self._enabled = config.index_enabled
        self._files = tuple(files)
        self._table = SlotTable(self._geometry)
        self._pending = PendingKeys() if pending is None else pending
        self._write: IndexWrite | None = None
        self._repaired: Mapping[str, Slots] = {}
        # How far the log is indexed, and how far in files.
        self.indexed_end = indexed_end
        self.written_end = -1

    def __repr__(self) -> str:
        return f"KeyIndex({len(self._files)} files, {len(self._pending)} keys pending)"

    def use_slots(self, slots: Mapping[str, Slots]) -> None:
        """Search files with these slots, by name, instead of their own; for read-only stores."""
        self._repaired = slots

    # ------------------------------------------------------------------------------ growing

    def add(self, keys: IndexKeys | UnhashedKeys | Sequence[LooseRecord], end: int) -> None:
        """Add the keys of the records up to `end`, which come after all others."""
        if not self._enabled:
            return
        if isinstance(keys, IndexKeys):
            self._pending.add(keys)
        elif isinstance(keys, UnhashedKeys):
            self._pending.add_unhashed(keys)
        elif keys:
            self._pending.add_loose(keys)
        self.indexed_end = end

    @property
    def pending_keys(self) -> int:
        """Keys that are only in memory."""
        return len(self._pending)

    @property
    def pending_bytes(self) -> int:
        return self._pending.bytes

    # ------------------------------------------------------------------------------ files

    def files(self) -> list[IndexFileInfo]:
        """Oldest first, as they are on disk."""
        return list(self._files)

    def files_with_pending(self) -> list[IndexFileInfo]:
        """The files as if the pending keys were written now; new ones have no name yet.

        Reads the newest file's slots: for tools, not for a busy broker.
        """
        files = list(self._files)
        keys = self._pending.view().hashed()
        newest = files[-1].header if files else None
        for share in share_out(newest, keys, self._geometry.entries):
            if share.is_new:
                files.append(IndexFileInfo("", share.header))
            slots = self._repaired.get(files[-1].name)
            if slots is None:
                slots = SlotTable(self._geometry).of(self._disk, files[-1])
            insertion = insert(share.header, slots, keys.part(share.start, share.end))
            files[-1] = IndexFileInfo(files[-1].name, insertion.header)
        return files

    @property
    def key_count(self) -> int:
        """Keys in files and in memory."""
        return sum(info.header.count - 1 for info in self._files) + len(self._pending)

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the last key, 0 if there is none; for keys that are not hashed yet, of the
        last record that may have one."""
        pending_ms = self._pending.view().end_timestamp_ms
        if pending_ms:
            return pending_ms
        return self._files[-1].header.end_timestamp_ms if self._files else 0

    # ------------------------------------------------------------------------------ writing

    @property
    def has_unwritten(self) -> bool:
        return self._enabled and (len(self._pending) > 0 or self.indexed_end != self.written_end)

    def take_write(self) -> IndexWrite | None:
        """Everything pending now; None if there is nothing. One at a time."""
        assert self._write is None
        if not self.has_unwritten:
            return None
        self._write = IndexWrite(
            self._disk,
            self.clock,
            self._geometry,
            newest=self._files[-1] if self._files else None,
            table=self._table,
            keys=self._pending.view(),
            indexed_end=self.indexed_end,
        )
        return self._write

    def finish_write(self, write: IndexWrite) -> None:
        """`write.run` returned, or found the disk full; what it could not write stays pending."""
        assert write is self._write
        self._write = None
        self._pending.drop(write.written)
        # The oldest files may have expired meanwhile, but never the one being written to.
        kept = self._files if write.replaced is None else self._files[:-1]
        self._files = (*kept, *write.files)
        if write.done:
            self.written_end = write.indexed_end

    # ------------------------------------------------------------------------------ expiry

    def take_expired(self, log_min_offset: int) -> list[IndexFileInfo]:
        """Drop the oldest files, never the newest one, that point only to records before
        `log_min_offset`; the caller removes them. Those that it cannot remove are found again by
        the next start, which is harmless."""
        expired = list(
            takewhile(
                lambda info: info.header.end_physical_offset < log_min_offset, self._files[:-1]
            )
        )
        self._files = self._files[len(expired) :]
        return expired

    # ------------------------------------------------------------------------------ searching

    def plan_search(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = TIMESTAMP_MAX,
        max_results: int = 64,
    ) -> KeySearch:
        """A search for the newest records with a key, stored in [begin_ms, end_ms] to within a
        second. It covers what is dispatched now, whenever it runs."""
        return KeySearch(
            self._disk,
            self._geometry,
            IndexSnapshot(self._files, self._pending.view(), self._repaired),
            WantedKey(index_key_hash(f"{topic}#{key}"), begin_ms, end_ms),
            key=key,
            max_results=max_results,
        )


def index_geometry(config: StoreConfig) -> IndexGeometry:
    return IndexGeometry(config.index_slots_max, config.index_entries_max)
