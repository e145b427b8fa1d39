"""Single messages by position or by key: what operators ask for, independent of queues.

Owns: nothing; every answer is read from the log, on the read pool, because it is rarely in the page
cache. Invariants: what is returned is a complete, valid record that consumers may see too; an
offset inside a record, before the log or after the dispatched part finds nothing, nor does one of a
deleted topic, even if a topic of that name exists again, or of a message that its topic no longer
keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from aerobee.broker.cold_reads.read_pool import LOOKUPS, ReadPool
from aerobee.broker.sending.guard import Guard
from aerobee.runtime.errors import InvalidArgument, MessageNotFound
from aerobee.store.engine.index.message_query import MessageQuery, QueryWanted
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.message_id import MessageIdIllegal, parse_offset_message_id
from aerobee.store.format.record import Record
from aerobee.store.format.record_layout import (
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    PROPERTIES_BYTES_MAX,
    RECORD_SIZE_MIN,
    HostAddress,
    RecordCorrupt,
)

T = TypeVar("T")

FOUND_MESSAGES_MAX = 64
FOUND_BYTES_MAX = 16 * 1024 * 1024
"""An answer is cut here so that it fits into a gRPC message; it always has the newest."""
NO_END_MS = (1 << 63) - 1
INDEX_GRAIN_MS = 999

ONE_BYTES = 64 * 1024
MANY_BYTES = 1024 * 1024
"""What a lookup usually reads, for accounting its turn among the cold reads."""

_HEAD_BYTES = PHYSICAL_OFFSET_AT + 8


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """Messages of a topic by one of their keys or by their unique key.

    Store times in Unix ms, both inclusive; 0 leaves a side open. `max_messages` 0: the maximum.
    """

    topic: str
    key: str
    is_unique_key: bool
    begin_ms: int = 0
    end_ms: int = 0
    max_messages: int = 0
    before: int = 0
    """Only records that begin before this log offset; 0: no bound."""
    even_unkept: bool = False
    """Also those that their topic no longer keeps but the log still has: for what the broker itself
    has to know."""


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """Records, newest first."""

    records: tuple[bytes, ...]
    more: bool
    """More may match: a search covers a limited number of keys and messages."""
    indexed_timestamp_ms: int
    indexed_end: int
    """Store time of the newest keyed message, and the log offset up to which keys are known."""


class MessageLookup:
    """Finds single messages; see the module."""

    def __init__(
        self, guard: Guard, store: MessageStore, reads: ReadPool, *, index_enabled: bool
    ) -> None:
        self._guard = guard
        self._store = store
        self._reads = reads
        self._index_enabled = index_enabled

    async def by_offset(self, physical_offset: int, *, even_unkept: bool = False) -> bytes:
        """The record that begins at this byte of the log. `even_unkept`: as in a `KeyQuery`.

        Raises:
            MessageNotFound: none begins there, or its topic or the log no longer keeps it.
            ShuttingDown, StoreFailed, Busy; AerobeeError: the disk cannot be read.
        """
        self._guard.check_available()
        store = self._store
        begin, end = store.min_offset, store.dispatched_end
        if not begin <= physical_offset < end:
            raise MessageNotFound(
                f"there is no message at physical offset {physical_offset}: the log holds "
                f"{begin} to {end}"
            )
        data = await self._reads.run_in_turn(
            LOOKUPS, ONE_BYTES, lambda: _read_record(store, physical_offset, end)
        )
        topic = Record(data).topic
        first = self._first_position(topic)
        if first is None or physical_offset < first:
            raise MessageNotFound(
                f"the message at physical offset {physical_offset} belonged to topic {topic}, "
                "which was deleted"
            )
        if not (even_unkept or is_kept(Record(data), self._store.queues.kept_from(topic))):
            raise MessageNotFound(
                f"the message at physical offset {physical_offset} is older than topic {topic} "
                "keeps its messages"
            )
        return data

    def _first_position(self, topic: str) -> int | None:
        """No message of the topic's present life is before this log position; None: it has none.
        Unknown for queues that are kept but not served."""
        if self._guard.has_batch_queues(topic):
            return self._store.min_offset
        return self._store.reads.first_position(topic)

    async def by_id(self, message_id: str) -> bytes:
        """The record with this offset message id.

        An id names the broker that stored the message, and the record repeats that name: another
        broker's record is not mistaken for it, and a broker that moved still finds its own.

        Raises:
            InvalidArgument: the text is not an offset message id.
            MessageNotFound: as `by_offset`, or the position has another broker's message.
            ShuttingDown, StoreFailed, Busy; AerobeeError: the disk cannot be read.
        """
        try:
            host, physical_offset = parse_offset_message_id(message_id)
        except MessageIdIllegal as error:
            raise InvalidArgument(str(error)) from error
        data = await self.by_offset(physical_offset)
        stored_by = Record(data).store_host
        if stored_by != host:
            raise MessageNotFound(
                f"message {message_id} was stored by {_host_text(host)}; the record at physical "
                f"offset {physical_offset} here was stored by {_host_text(stored_by)}"
            )
        return data

    async def by_key(self, query: KeyQuery) -> FoundMessages:
        """Messages with a key, newest first.

        Raises:
            IllegalName, TopicNotFound.
            InvalidArgument: the key is empty or too long, or the times are the wrong way round.
            ShuttingDown, StoreFailed, Busy; AerobeeError: the disk cannot be read.
        """
        self._guard.check_available()
        self._guard.check_topic(query.topic)
        begin_ms, end_ms = max(query.begin_ms, 0), query.end_ms if query.end_ms > 0 else NO_END_MS
        if not self._index_enabled:
            raise InvalidArgument(
                "this broker keeps no index (store.index_enabled): it finds messages by their "
                "offset message id only"
            )
        if not query.key:
            raise InvalidArgument("the key is empty: name the key to look for")
        _check_length(query.key)
        if begin_ms > end_ms:
            raise InvalidArgument(f"the start {begin_ms} is later than the end {end_ms}: swap them")
        # Times in the index are truncated to whole seconds.
        begin = max(0, begin_ms - INDEX_GRAIN_MS)
        wanted = QueryWanted(query.topic, query.key, begin, end_ms, query.before)
        search = MessageQuery(self._store.index, self._store.log, wanted)
        first = self._first_position(query.topic)
        kept_from = {} if query.even_unkept else self._store.queues.kept_from(query.topic)
        index = self._store.index
        indexed_timestamp_ms, indexed_end = index.end_timestamp_ms, index.indexed_end
        kept, more = await self._reads.run_in_turn(
            LOOKUPS,
            MANY_BYTES,
            lambda: _that_fit(
                (
                    record
                    for record in search.records()
                    if _matches(record, query, begin_ms, end_ms)
                    and first is not None
                    and Record(record).physical_offset >= first
                    and is_kept(Record(record), kept_from)
                ),
                min(query.max_messages or FOUND_MESSAGES_MAX, FOUND_MESSAGES_MAX),
            ),
            search.cancel,
        )
        more = more or search.cut_short
        return FoundMessages(tuple(kept), more, indexed_timestamp_ms, indexed_end)


def is_kept(record: Record, kept_from: Mapping[int, int]) -> bool:
    """Whether its topic still keeps it. `kept_from`: by queue, where that begins."""
    return record.queue_offset >= kept_from.get(record.queue_id, 0)


def _check_length(key: str) -> None:
    """Hashing a long key would hold up the loop. Raises InvalidArgument."""
    if len(key) > PROPERTIES_BYTES_MAX or len(key.encode()) > PROPERTIES_BYTES_MAX:
        raise InvalidArgument(
            f"the key is longer than the {PROPERTIES_BYTES_MAX} bytes that the properties of a "
            "message may have: no message has it"
        )


def _read_record(store: MessageStore, physical_offset: int, end: int) -> bytes:
    """[any thread] The record at an arbitrary offset. Raises MessageNotFound."""
    nothing = MessageNotFound(
        f"no message begins at physical offset {physical_offset}: that offset is inside a "
        "message or between two"
    )
    if end - physical_offset < RECORD_SIZE_MIN:
        raise nothing
    head = _read(store, physical_offset, _HEAD_BYTES, otherwise=nothing)
    size = _integer(head, 0, 4)
    # Bytes inside a record may look like a record, but do not contain their own position.
    if (
        _integer(head, MAGIC_AT, 4) not in (MAGIC_V1, MAGIC_V2)
        or _integer(head, PHYSICAL_OFFSET_AT, 8) != physical_offset
        or not RECORD_SIZE_MIN <= size <= end - physical_offset
    ):
        raise nothing
    data = _read(store, physical_offset, size, otherwise=nothing)
    try:
        Record(data, 0, size).check()
    except RecordCorrupt as error:
        raise MessageNotFound(
            f"the message at physical offset {physical_offset} is damaged ({error.reason}): check "
            "the folder with `aerobee store verify`"
        ) from error
    return data


def _read(store: MessageStore, offset: int, size: int, *, otherwise: MessageNotFound) -> bytes:
    """Bytes within one segment. Raises `otherwise`, or MessageNotFound if the log has moved on."""
    try:
        return store.log.record_at(offset, size)
    except MessageNotFound:
        if offset < store.min_offset:
            raise
        raise otherwise from None


def _integer(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big", signed=True)


def _matches(data: bytes, query: KeyQuery, begin_ms: int, end_ms: int) -> bool:
    record = Record(data)
    if not begin_ms <= record.store_timestamp_ms <= end_ms:
        return False
    if query.is_unique_key:
        return record.unique_key == query.key
    return query.key in record.keys


def _that_fit(records: Iterable[bytes], count_max: int) -> tuple[list[bytes], bool]:
    """[any thread] The first ones that fit an answer, and whether there are others."""
    kept: list[bytes] = []
    total = 0
    for record in records:
        total += len(record)
        if len(kept) == count_max or (kept and total > FOUND_BYTES_MAX):
            return kept, True
        kept.append(record)
    return kept, False


def _host_text(host: HostAddress) -> str:
    return f"the broker at {host}"
