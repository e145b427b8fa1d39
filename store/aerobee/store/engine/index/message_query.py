"""From a topic and a key to the records themselves, newest first.

The key index knows only hashes; here the record's own topic and keys decide. Records no longer in
the log are left out. A query has a budget of index entries, records and time: if it runs out, for
example because millions of unwanted records share a key, the answer is cut short and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aerobee.runtime.errors import MessageNotFound
from aerobee.store.engine.index.key_index import KeyIndex
from aerobee.store.engine.index.key_search import TIMESTAMP_MAX
from aerobee.store.engine.index.search_budget import RECORD_ENTRIES, SearchBudget
from aerobee.store.engine.log.commit_log import CommitLog
from aerobee.store.format.index_keys import record_keys
from aerobee.store.format.record import Record, RecordCorrupt

_SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class QueryWanted:
    """What the records must have; store times in Unix ms, both ends included."""

    topic: str
    key: str
    begin_ms: int = 0
    end_ms: int = TIMESTAMP_MAX
    before: int = 0
    """Only records that begin before this log offset; 0: no bound."""


class MessageQuery:
    """Planned on the loop, for what is dispatched at that time."""

    def __init__(self, index: KeyIndex, log: CommitLog, wanted: QueryWanted) -> None:
        self._search = index.plan_search(
            wanted.topic, wanted.key, begin_ms=wanted.begin_ms, end_ms=wanted.end_ms
        )
        self._read = log.record_at
        self._lowest = log.min_offset
        self._wanted = wanted
        self._budget = SearchBudget(index.clock)

    def cancel(self) -> None:
        """[any thread] The answer is no longer wanted: `records` ends soon."""
        self._budget.cancel()

    @property
    def cut_short(self) -> bool:
        """Whether there may be more, because the budget ran out before everything was searched."""
        return self._budget.is_spent

    def records(self) -> Iterator[bytes]:
        """[any thread] One by one, each once, as many as the caller takes. Raises OSError."""
        for offset in self._search.unique_matches(self._lowest, self._budget):
            if 0 < self._wanted.before <= offset:
                continue
            if not self._budget.spend(RECORD_ENTRIES):
                return
            record = self._record_at(offset)
            if record is not None:
                yield record

    def _record_at(self, offset: int) -> bytes | None:
        """The record if it exists and has the topic and the key."""
        try:
            size = int.from_bytes(self._read(offset, _SIZE_BYTES), "big", signed=True)
            if size <= _SIZE_BYTES:
                return None
            data = self._read(offset, size)
            record = Record(data, 0, size)
            wanted = self._wanted
            if record.topic != wanted.topic:
                return None
            if wanted.key not in record_keys(record.properties_bytes):
                return None
        except (MessageNotFound, RecordCorrupt):
            return None
        return data
