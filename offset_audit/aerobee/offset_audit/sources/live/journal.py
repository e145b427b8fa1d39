"""`aerobee.offset_journal`: the history of commits, from live brokers or from stores at rest.

Live, it is pulled from the journal's topic, one partition per broker group. At rest, it is the kind
`journal` of the source of stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import GET_STATS, PULL, SEARCH_BY_TIMESTAMP
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.rules.names import JOURNAL_TOPIC
from aerobee.offset_audit.sources.live.asking import BrokerAddress, find_journals
from aerobee.offset_audit.sources.live.options import LiveOptions, parse_options
from aerobee.offset_audit.sources.store.journal_entries import (
    JournalRecord,
    Origin,
    journal_batch,
    journal_batches,
)
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.source import StoreReader
from aerobee.offset_audit.tables import JOURNAL, ORIGIN
from aerobee.rpc.own_protocol import error_from_code
from aerobee.rpc.tls import dialled_tls
from aerobee.runtime import errors
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2

JOURNAL_QUEUE: Final = 0
PULL_BYTES: Final = 1024 * 1024
PULL_MESSAGES: Final = 1_024
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
            given = {name: text for name, text in self.options.items() if name.lower() != "columns"}
            return StoreReader(StoreOptions.parse({**given, "kind": "journal"}), schema.names)
        return LiveJournalReader(options)


@dataclass
class OneJournal(InputPartition):
    """A broker whose journal is read."""

    asked: BrokerAddress


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
                for batch in journal_batches(reading.passed(_drain(runner, records))):
                    given, origin = True, _origin_of(batch)
                    yield batch
        except errors.AerobeeError as error:
            if not self._options.skip_unreachable:
                raise
            # Its own tables show whether a broker answers at all.
            is_silent = isinstance(error, errors.Unreachable | errors.DeadlineExceeded)
            if given or not is_silent:
                yield _unread(origin, f"{asked.address}: {error}")


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


def _origin_of(batch: pa.RecordBatch) -> Origin:
    cluster, broker_name, broker_id = (batch.column(index)[0].as_py() for index in range(3))
    return cluster, broker_name, broker_id


def _unread(origin: Origin, why: str) -> pa.RecordBatch:
    nothing = dict.fromkeys(schema(JOURNAL).names)
    row = nothing | dict(zip(schema(ORIGIN).names, origin, strict=True))
    return journal_batch([tuple((row | {"client_id": why, "kind": UNREAD}).values())])
