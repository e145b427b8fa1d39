"""`aerobee.messages` as Spark knows it."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from aerobee.offset_audit.sources.messages.batch_reader import FilteredMessageReader, MessageReader
from aerobee.offset_audit.sources.messages.options import MessageOptions, parse_options
from aerobee.offset_audit.sources.messages.stream_reader import MessageStreamReader


class MessagesSource(DataSource):
    """Raises InvalidArgument for impossible options, as soon as they are given."""

    @classmethod
    def name(cls) -> str:
        return "aerobee.messages"

    def schema(self) -> str:
        return self._options(is_streaming=None).columns.ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options(is_streaming=False)
        return FilteredMessageReader(options) if options.push_filters else MessageReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return MessageStreamReader(self._options(is_streaming=True))

    def _options(self, *, is_streaming: bool | None) -> MessageOptions:
        return parse_options(self.options, is_streaming=is_streaming)
