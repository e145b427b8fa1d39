"""`aerobee.offsets`: what each live broker knows about offsets, one partition per broker.

A broker that does not answer, or whose answer breaks off, gives one row of `brokers` that says so
and nothing else: half an answer would look like loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from aerobee.offset_audit.sources.live.asking import (
    BrokerAddress,
    ask_broker,
    ask_checksums,
    find_brokers,
)
from aerobee.offset_audit.sources.live.batches import Batches, log_batch
from aerobee.offset_audit.sources.live.columns import table_schema
from aerobee.offset_audit.sources.live.options import (
    LOG_TABLE,
    READ_TABLES,
    LiveOptions,
    parse_options,
)

TABLES = (*READ_TABLES, LOG_TABLE)


class OffsetsSource(DataSource):
    """See the package. Options: `nameservers` and `cluster`, or `brokers`; `table`, `topics`,
    `groups`, `firstUnread`, `matchingUnread`, `timeoutMs`."""

    @classmethod
    def name(cls) -> str:
        return "aerobee.offsets"

    def schema(self) -> StructType:
        return table_schema(parse_options(self.options, TABLES).table)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options, TABLES)
        return LogReader(options) if options.table == LOG_TABLE else OffsetsReader(options)


@dataclass
class OneBroker(InputPartition):
    """A broker to be asked."""

    asked: BrokerAddress


class OffsetsReader(DataSourceReader):
    """Reads what the options ask for. Spark's own filters are not passed to the brokers: Spark 4.3
    keeps what one query of a frame pushed for the frame's other queries, which then lack rows."""

    def __init__(self, options: LiveOptions, asked: Sequence[BrokerAddress] | None = None) -> None:
        """`asked`: these brokers, whatever the options say."""
        self._options = options
        self._asked = asked
        self._tables: tuple[str, ...] = (options.table,) if options.table else READ_TABLES

    def partitions(self) -> list[InputPartition]:
        asked = find_brokers(self._options) if self._asked is None else self._asked
        return [OneBroker(one) for one in asked]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, OneBroker) or not self._tables:
            return
        numbers = [READ_TABLES.index(name) for name in self._tables]
        answer = ask_broker(partition.asked, self._options, numbers)
        yield from Batches(self._options.table).of_answer(answer, self._tables)


class LogReader(DataSourceReader):
    """Checksums of each broker's log, made by the broker."""

    def __init__(self, options: LiveOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [OneBroker(asked) for asked in find_brokers(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, OneBroker):
            yield from log_batch(ask_checksums(partition.asked, self._options))
