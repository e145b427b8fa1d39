"""`aerobee.registry`: what the nameservers know, as tables of brokers, groups and topics.

Each table is of one revision, which its rows contain: brokers come and go between two questions. A
run takes all tables from one view before it asks the brokers, and another view after that: no
broker is blamed for what changed in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.sources.live.asking import view_registry
from aerobee.offset_audit.sources.live.options import (
    REGISTRY_TABLES,
    LiveOptions,
    parse_options,
)
from aerobee.offset_audit.sources.live.snapshots import REGISTRY_ROWS, Row
from aerobee.offset_audit.tables import COLUMNS
from aerobee.runtime.errors import InvalidArgument


class RegistrySource(DataSource):
    """Options: `nameservers`, `cluster`, `table` (brokers, groups or topics), `timeoutMs`."""

    @classmethod
    def name(cls) -> str:
        return "aerobee.registry"

    def schema(self) -> StructType:
        return schema(COLUMNS[f"registry_{_options(self.options).table}"])

    def reader(self, schema: StructType) -> RegistryReader:
        return RegistryReader(_options(self.options))


class RegistryReader(DataSourceReader):
    """One partition: one nameserver answers for all."""

    def __init__(self, options: LiveOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[Row]:
        table = self._options.table
        yield from REGISTRY_ROWS[table](view_registry(self._options, with_topics=table == "topics"))


def _options(given: Mapping[str, str]) -> LiveOptions:
    options = parse_options(given, REGISTRY_TABLES)
    if not options.table:
        raise InvalidArgument(f"name the table: table={'|'.join(REGISTRY_TABLES)}")
    if not options.nameservers:
        raise InvalidArgument("only nameservers know the registry: nameservers=HOST:PORT,...")
    return options
