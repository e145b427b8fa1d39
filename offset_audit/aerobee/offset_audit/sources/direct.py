"""Rows of our own sources without Spark's discovery of what a source is.

For `spark.read.format(...)` Spark asks one Python process for the source's columns, another for its
partitions, a third to read them, and each imports everything: seconds of CPU time, which is most of
the cost of reading a small cluster. A run knows its sources, so it plans them itself, on the same
machine, and only the reading is Spark's. Small results are read here too: starting Python workers
takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

AT_ONCE = 4
"""How many partitions are read here at the same time."""


def rows_by(
    session: SparkSession, reader: DataSourceReader, columns: StructType, *, rows_here: int = 0
) -> DataFrame:
    """What a reader gives, which must be Arrow batches; one task for each of its partitions. Plans
    at once, and raises what the reader raises while planning; reads when used.

    With `rows_here` and without a Spark cluster, the rows are read here and at once if there are at
    most that many; otherwise what was read is discarded, and Spark reads everything."""
    partitions = list(reader.partitions())
    if rows_here and (session.sparkContext.master or "").startswith("local"):
        few = _few(reader, partitions, rows_here)
        if few is not None:
            found = pa.Table.from_batches(few, to_arrow_schema(columns, timezone="UTC"))
            return session.createDataFrame(found, columns)

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from _batches(reader, partitions[number])

    count = len(partitions)
    return session.range(0, count, 1, max(count, 1)).mapInArrow(read, columns)


def _few(
    reader: DataSourceReader, partitions: Sequence[InputPartition], rows_max: int
) -> list[pa.RecordBatch] | None:
    """The rows of all partitions; None: there are more than `rows_max`."""
    found: list[pa.RecordBatch] = []
    pool = ThreadPoolExecutor(AT_ONCE, "audit-reader")
    try:
        for some in pool.map(partial(_some, reader, rows_max), partitions):
            found += some
            if sum(batch.num_rows for batch in found) > rows_max:
                return None
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def _some(
    reader: DataSourceReader, rows_max: int, partition: InputPartition
) -> list[pa.RecordBatch]:
    """Its rows, until there are more than `rows_max`."""
    found: list[pa.RecordBatch] = []
    rows = 0
    for batch in _batches(reader, partition):
        found.append(batch)
        rows += batch.num_rows
        if rows > rows_max:
            break
    return found


def _batches(reader: DataSourceReader, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    for batch in reader.read(partition):
        assert isinstance(batch, pa.RecordBatch), "a source that is read directly gives batches"
        yield batch
