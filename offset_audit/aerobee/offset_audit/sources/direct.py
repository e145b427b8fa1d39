"""Rows of a source of ours without Spark's way of finding out what a source is.

For `spark.read.format(...)` Spark asks one Python process for the source's columns, another for its
partitions, a third to read them, and each imports all it needs: seconds of processor time, which is
most of what a small cluster costs to read. A run knows its sources, so it plans them itself, on the
same machine, and only reading is Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


def rows_of(session: SparkSession, source: DataSource) -> DataFrame:
    """What `source` gives with its options, whose reader must give Arrow batches. Plans at once,
    and raises what the reader raises there; reads when it is asked."""
    columns = source.schema()
    assert isinstance(columns, StructType), "a source that is read directly tells types, not text"
    return rows_by(session, source.reader(columns), columns)


def rows_by(session: SparkSession, reader: DataSourceReader, columns: StructType) -> DataFrame:
    """Likewise, of a reader that is there already; one task for each of its partitions."""
    partitions = list(reader.partitions())

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from _batches(reader, partitions[number])

    count = len(partitions)
    return session.range(0, count, 1, max(count, 1)).mapInArrow(read, columns)


def _batches(reader: DataSourceReader, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    for batch in reader.read(partition):
        assert isinstance(batch, pa.RecordBatch), "a source that is read directly gives batches"
        yield batch
