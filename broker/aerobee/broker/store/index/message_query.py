"""From a topic and a key to the records themselves, newest first.

The key index knows hashes only; here the record's own topic and keys decide. Records that the log
has no more are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from aerobee.broker.store.index.key_search import KeySearch
from aerobee.runtime.errors import MessageNotFound
from aerobee.store_format.index_keys import record_keys
from aerobee.store_format.record import Record, RecordCorrupt

ReadRecord = Callable[[int, int], bytes]

_SIZE_BYTES = 4


class MessageQuery:
    """Planned on the loop; `run` may be called on any thread."""

    def __init__(
        self, search: KeySearch, read: ReadRecord, *, topic: str, key: str, max_messages: int
    ) -> None:
        """`read` gives the log's bytes at (physical offset, size), or raises MessageNotFound."""
        self._search = search
        self._read = read
        self._topic = topic
        self._key = key
        self._max_messages = max_messages

    def run(self) -> list[bytes]:
        """The records, each once. Raises OSError."""
        return list(islice(self.records(), max(0, self._max_messages)))

    def records(self) -> Iterator[bytes]:
        """The same one by one, as many as the caller takes. Raises OSError."""
        for offset in self._search.unique_matches():
            record = self._record_at(offset)
            if record is not None:
                yield record

    def _record_at(self, offset: int) -> bytes | None:
        """The record if it is there and has the topic and the key."""
        try:
            size = int.from_bytes(self._read(offset, _SIZE_BYTES), "big", signed=True)
            if size <= _SIZE_BYTES:
                return None
            data = self._read(offset, size)
            record = Record(data, 0, size)
            if record.topic != self._topic or self._key not in record_keys(record.properties_bytes):
                return None
        except (MessageNotFound, RecordCorrupt):
            return None
        return data
