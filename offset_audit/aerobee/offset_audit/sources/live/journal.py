"""`aerobee.offset_journal`: the history of commits, from live brokers or from stores at rest.

Live, it is pulled from the journal's topic, one partition per broker group. At rest, it is read
with the source of stores, and has its partitions. The bodies of records are decoded here;
docs/internals/offset-journal.md describes their members.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import GET_STATS, PULL, SEARCH_BY_TIMESTAMP
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.sources.live.asking import BrokerAddress, find_journals
from aerobee.offset_audit.sources.live.options import LiveOptions, parse_options
from aerobee.offset_audit.sources.store.conditions import Conditions
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.part_marks import Mark
from aerobee.offset_audit.sources.store.plain_values import int64, queue_number, text_of
from aerobee.offset_audit.sources.store.source import StoreReader
from aerobee.offset_audit.tables import JOURNAL, ORIGIN
from aerobee.rpc.own_protocol import error_from_code
from aerobee.rpc.tls import dialled_tls
from aerobee.runtime import errors
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2

Origin: TypeAlias = tuple[str | None, str | None, int | None]
"""cluster, broker_name, broker_id"""

JOURNAL_TOPIC: Final = "AEROBEE_OFFSET_JOURNAL"
JOURNAL_QUEUE: Final = 0
PULL_BYTES: Final = 1024 * 1024
PULL_MESSAGES: Final = 1_024
BATCH_ROWS: Final = 16_384
CHANGES: Final = frozenset({"commit", "reset", "image"})
"""Kinds of entries that contain an offset."""
REMOVE: Final = "remove"
TOPIC_END: Final = "topicEnd"
"""A deleted topic's end: reported as the removal of all its offsets."""
"""Offsets were deleted. Of group, topic and queue id, those that such an entry does not name are
null in its row and stand for all."""
SENT_BACK: Final = "sentBack"
RESENT: Final = "resent"
RETURNED: Final = "returned"
"""Resent to the group that failed: written as `resent`, to its retry topic."""
COPIED: Final = "copied"
UNREAD: Final = "unread"
"""The kind of the row for a journal whose reading broke off: the rest of that journal must be
ignored. `client_id` has the reason; no other column but the origin is set."""

_MOVED: Final = frozenset(
    {common_pb2.OFFSET_TOO_SMALL, common_pb2.OFFSET_TOO_LARGE, common_pb2.MESSAGE_REMOVED}
)


class OffsetJournalSource(DataSource):
    """Options: `nameservers` and `cluster`, or `brokers`, or a path; `sinceMs`, `timeoutMs`,
    `skipUnreachable`: whose journal cannot be read to its end has a row of kind `unread`, or none
    at all if it gave nothing."""

    @classmethod
    def name(cls) -> str:
        return "aerobee.offset_journal"

    def schema(self) -> StructType:
        return schema(JOURNAL)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options, takes_path=True)
        if options.path:
            return StoredJournalReader(self.options, options.since_ms)
        return LiveJournalReader(options)


@dataclass
class OneJournal(InputPartition):
    """A broker whose journal is read."""

    asked: BrokerAddress


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One record of the journal, and whose it is."""

    origin: Origin
    journal_offset: int
    body: bytes


@dataclass(frozen=True, slots=True)
class KnownJournal:
    """A broker's journal, as it was read before."""

    last: JournalRecord
    rows: list[Mapping[str, Any]]
    """Of JOURNAL, in order."""


@dataclass(slots=True)
class _Reading:
    """How far one reading of a journal came."""

    begin: int | None = None
    """The first offset; None: the options decide."""
    last: JournalRecord | None = None
    is_whole: bool = False

    def passed(self, records: Iterable[JournalRecord]) -> Iterator[JournalRecord]:
        for record in records:
            self.last = record
            yield record
        self.is_whole = True


class LiveJournalReader(DataSourceReader):
    """Pulls as a reader without a group, so nothing in the cluster changes."""

    def __init__(self, options: LiveOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [OneJournal(asked) for asked in find_journals(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, OneJournal):
            yield from self._read(partition.asked, _Reading())

    def read_on(
        self, asked: BrokerAddress, known: KnownJournal | None
    ) -> tuple[list[Mapping[str, Any]], KnownJournal | None]:
        """The rows that `read` gives, but only records after those of `known` are pulled; and what
        is known now, None if the journal was not read to its end."""
        rows: list[Mapping[str, Any]] = []
        reading = _Reading()
        if known is not None and (first := self._wanted_of(asked, known)) is not None:
            reading = _Reading(known.last.journal_offset + 1, known.last)
            rows += [row for row in known.rows if row["journal_offset"] >= first]
        read = [row for batch in self._read(asked, reading) for row in batch.to_pylist()]
        if not reading.is_whole:
            return [row for row in read if row["kind"] == UNREAD], None
        rows += read
        return rows, None if reading.last is None else KnownJournal(reading.last, rows)

    def _wanted_of(self, asked: BrokerAddress, known: KnownJournal) -> int | None:
        """From which offset on its rows are still wanted; None: it is another journal now. A broker
        that does not answer will say so when it is read."""
        with suppress(errors.AerobeeError):
            return asyncio.run(_still_first(asked, self._options, known.last))
        return None

    def _read(self, asked: BrokerAddress, reading: _Reading) -> Iterator[pa.RecordBatch]:
        given = False
        origin: Origin = asked.cluster or None, asked.broker_name or None, asked.broker_id
        try:
            with asyncio.Runner() as runner:
                records = pull_records(asked, self._options, reading.begin)
                for batch in _batches(reading.passed(_drain(runner, records))):
                    given, origin = True, _origin_of(batch)
                    yield batch
        except errors.AerobeeError as error:
            if not self._options.skip_unreachable:
                raise
            # Its own tables show whether a broker answers at all.
            is_silent = isinstance(error, errors.Unreachable | errors.DeadlineExceeded)
            if given or not is_silent:
                yield _unread(origin, f"{asked.address}: {error}")


class StoredJournalReader(DataSourceReader):
    """The journal's records of stores at rest."""

    def __init__(self, options: Mapping[str, str], since_ms: int) -> None:
        given = {name.lower(): value for name, value in options.items()}
        given.pop("columns", None)
        wanted = StoreOptions.parse({**given, "kind": "records", "bodies": "true"})
        names = ("cluster", "broker_name", "broker_id", "queue_offset", "store_ms", "body")
        only = Conditions().with_texts("topic", (JOURNAL_TOPIC,))
        self._records = StoreReader(wanted, names, only)
        self._since_ms = since_ms

    def partitions(self) -> list[InputPartition]:
        return self._records.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _batches(self._found(partition))

    def mark(self, partition: InputPartition) -> Mark | None:
        """What the partition's rows depend on; None: they are to be read."""
        found = self._records.mark(partition)
        return None if found is None else replace(found, key=(self._since_ms, *found.key))

    def _found(self, partition: InputPartition) -> Iterator[JournalRecord]:
        for batch in self._records.read(partition):
            for row in batch.to_pylist():
                if row["body"] is not None and (row["store_ms"] or 0) >= self._since_ms:
                    origin = row["cluster"], row["broker_name"], row["broker_id"]
                    yield JournalRecord(origin, row["queue_offset"], row["body"])


def whole_journals(rows: Frame) -> tuple[Frame, list[str]]:
    """The rows of the journals that were read to their end, and a sentence for each other one.
    `rows` is read twice and should be persisted."""
    notes: list[str] = []
    for one in rows.where(F.col("kind") == UNREAD).collect():  # at most one per broker
        notes.append(
            "an offset journal could not be read to its end and is not used: "
            + str(one["client_id"])
        )
        same = [F.col(name).eqNullSafe(F.lit(one[name])) for name in schema(ORIGIN).names]
        rows = rows.where(~reduce(Column.__and__, same))
    return rows.where(F.col("kind") != UNREAD), notes


# ---------------------------------------------------------------------- pulling


async def pull_records(
    asked: BrokerAddress, options: LiveOptions, begin: int | None = None
) -> AsyncIterator[list[JournalRecord]]:
    """All records from `begin`, or the first wanted one, to the journal's current end."""
    channels = Channels(tls=dialled_tls(None))
    timeout_ms = options.timeout_ms
    try:
        stats = await channels.call(
            asked.address, GET_STATS, broker_pb2.GetStatsRequest(), timeout_ms=timeout_ms
        )
        who = stats.identity
        origin = who.cluster, who.broker_name, who.broker_id
        offset = begin
        if offset is None:
            offset = await _first_offset(channels, asked.address, options)
        while True:
            request = _pull_from(offset, PULL_MESSAGES)
            answer = await channels.call(asked.address, PULL, request, timeout_ms=timeout_ms)
            if answer.code == common_pb2.NO_NEW_MESSAGE:
                return
            if answer.code not in (common_pb2.OK, *_MOVED):
                raise error_from_code(answer.code, answer.message)
            yield [
                JournalRecord(origin, record.queue_offset, bytes(record.body))
                for record in iterate_records(answer.records)
            ]
            if answer.next_offset >= answer.max_offset or answer.next_offset <= offset:
                return
            offset = answer.next_offset
    finally:
        await channels.close()


async def _still_first(
    asked: BrokerAddress, options: LiveOptions, last: JournalRecord
) -> int | None:
    """The first wanted offset, if the journal still has `last` and it is wanted."""
    channels = Channels(tls=dialled_tls(None))
    try:
        first = await _first_offset(channels, asked.address, options)
        if first > last.journal_offset:
            return None
        request = _pull_from(last.journal_offset, 1)
        answer = await channels.call(asked.address, PULL, request, timeout_ms=options.timeout_ms)
        found = next(iterate_records(answer.records), None)
        is_last = found is not None and (found.queue_offset, bytes(found.body)) == (
            last.journal_offset,
            last.body,
        )
        return first if is_last else None
    finally:
        await channels.close()


def _pull_from(offset: int, messages: int) -> broker_pb2.PullRequest:
    return broker_pb2.PullRequest(
        topic=JOURNAL_TOPIC,
        queue_id=JOURNAL_QUEUE,
        offset=offset,
        max_bytes=PULL_BYTES,
        max_messages=messages,
    )


async def _first_offset(channels: Channels, address: str, options: LiveOptions) -> int:
    if not options.since_ms:
        return 0
    queue = broker_pb2.TopicQueue(topic=JOURNAL_TOPIC, queue_id=JOURNAL_QUEUE)
    found = await channels.call(
        address,
        SEARCH_BY_TIMESTAMP,
        broker_pb2.SearchByTimestampRequest(queues=[queue], timestamp_ms=options.since_ms),
        timeout_ms=options.timeout_ms,
    )
    return max(0, found.offsets[0])


def _drain(
    runner: asyncio.Runner, records: AsyncIterator[list[JournalRecord]]
) -> Iterator[JournalRecord]:
    """The same without needing a caller's loop."""

    async def following() -> list[JournalRecord] | None:
        return await anext(records, None)

    while (found := runner.run(following())) is not None:
        yield from found


# ---------------------------------------------------------------------- decoding


def _batches(records: Iterable[JournalRecord]) -> Iterator[pa.RecordBatch]:
    arrow = to_arrow_schema(schema(JOURNAL), timezone="UTC")
    rows: list[tuple[object, ...]] = []
    for record in records:
        rows.extend(entries_of(record))
        if len(rows) >= BATCH_ROWS:
            yield _batch(rows, arrow)
            rows = []
    if rows:
        yield _batch(rows, arrow)


def _origin_of(batch: pa.RecordBatch) -> Origin:
    cluster, broker_name, broker_id = (batch.column(index)[0].as_py() for index in range(3))
    return cluster, broker_name, broker_id


def _unread(origin: Origin, why: str) -> pa.RecordBatch:
    row = (*origin, None, None, None, None, None, None, None, None, why, UNREAD, None)
    return _batch([row], to_arrow_schema(schema(JOURNAL), timezone="UTC"))


def _batch(rows: list[tuple[object, ...]], arrow: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, arrow, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def entries_of(record: JournalRecord) -> Iterator[tuple[object, ...]]:
    """Rows of JOURNAL; none for a record that cannot be read, which the broker's log names."""
    try:
        entries = json.loads(record.body)
    except (ValueError, RecursionError):
        return
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        kind = entry.get("kind") if isinstance(entry, dict) else None
        row: tuple[object, ...] | None = None
        if kind in (REMOVE, TOPIC_END):
            row = _removal(record, number, entry)
        elif isinstance(kind, str) and kind in CHANGES:
            row = _row(record, number, entry)
        elif kind in (SENT_BACK, RESENT) and entry.get("repeated") is not True:
            # In an image it is nothing new, and refers to an earlier log.
            row = _row(record, number, entry, int64(entry.get("number")))
        elif kind == COPIED:
            row = _copied(record, number, entry)
        if row is not None:
            yield row


def _row(
    record: JournalRecord, number: int, entry: Mapping[str, Any], copy: int | None = None
) -> tuple[object, ...] | None:
    """None: it does not say whose offset it is, or what it is."""
    group, topic = text_of(entry.get("group")), text_of(entry.get("topic"))
    queue_id, offset = queue_number(entry.get("queueId")), int64(entry.get("offset"))
    if group is None or topic is None or queue_id is None or offset is None:
        return None
    return (
        *record.origin,
        record.journal_offset,
        number,
        group,
        topic,
        queue_id,
        offset,
        int64(entry.get("leaseEpoch")),
        int64(entry.get("timestamp")),
        text_of(entry.get("clientId")),
        RETURNED if str(entry.get("toTopic", "")).startswith(RETRY_PREFIX) else entry["kind"],
        copy,
    )


def _copied(
    record: JournalRecord, number: int, entry: Mapping[str, Any]
) -> tuple[object, ...] | None:
    through, timestamp_ms = int64(entry.get("through")), int64(entry.get("timestamp"))
    if through is None:
        return None
    head = (*record.origin, record.journal_offset, number)
    return (*head, None, None, None, None, None, timestamp_ms, None, COPIED, through)


def _removal(
    record: JournalRecord, number: int, entry: Mapping[str, Any]
) -> tuple[object, ...] | None:
    """None: it does not say what is deleted."""
    group, topic = text_of(entry.get("group")), text_of(entry.get("topic"))
    queue_id = queue_number(entry.get("queueId"))
    for name, value in (("group", group), ("topic", topic), ("queueId", queue_id)):
        if name in entry and value is None:
            return None
    if (group is None or topic is None) and (queue_id is not None or group is topic):
        return None
    timestamp_ms = int64(entry.get("timestamp"))
    head = (*record.origin, record.journal_offset, number)
    return (*head, group, topic, queue_id, None, None, timestamp_ms, None, REMOVE, None)
