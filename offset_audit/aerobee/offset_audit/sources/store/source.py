"""`spark.read.format("aerobee.store").option("kind", ...).load(path)`: the interface to Spark.

Single columns can be selected with option `columns`, or by giving Spark a schema of them; Spark
does not tell a Python source which columns it will use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from aerobee.offset_audit.sources.store.columns import Columns
from aerobee.offset_audit.sources.store.conditions import Conditions
from aerobee.offset_audit.sources.store.filters import with_filter
from aerobee.offset_audit.sources.store.folders import StoreUnreadable, find_stores
from aerobee.offset_audit.sources.store.kinds import KINDS, Kind, Wanted
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.part_marks import Mark, mark_of
from aerobee.offset_audit.sources.store.plan import Partition


class StoreSource(DataSource):
    """The data source `aerobee.store`."""

    @classmethod
    def name(cls) -> str:
        return "aerobee.store"

    def schema(self) -> str:
        options = StoreOptions.parse(self.options)
        return _columns(options).ddl

    def reader(self, schema: StructType) -> StoreReader:
        options, names = StoreOptions.parse(self.options), tuple(schema.fieldNames())
        return (FilteredStoreReader if options.push_filters else StoreReader)(options, names)


class StorePartition(InputPartition):
    """What one task reads."""

    def __init__(self, partition: Partition[Any]) -> None:
        super().__init__(partition)


class StoreReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(
        self, options: StoreOptions, names: Sequence[str] = (), conditions: Conditions | None = None
    ) -> None:
        """`names`: of the columns, in order; without, those that the options choose."""
        self._options = options
        self._columns = _kind(options).columns.chosen(names or _columns(options).names)
        self._conditions = conditions or Conditions()

    @property
    def names(self) -> tuple[str, ...]:
        return self._columns.names

    def partitions(self) -> list[InputPartition]:
        stores = [
            store
            for store in find_stores(self._options.paths, self._options.names)
            if self._conditions.accepts_store(store.origin)
        ]
        planned = _kind(self._options).plan(stores, self._wanted)
        # Spark makes one partition of an empty list; this one gives nothing.
        return [StorePartition(partition) for partition in planned or [Partition(())]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _kind(self._options).batches(partition.value, self._wanted)

    def mark(self, partition: InputPartition) -> Mark | None:
        """What the partition's rows depend on; None: they are to be read."""
        return mark_of(partition.value, self._wanted)

    @property
    def _wanted(self) -> Wanted:
        return Wanted(self._options, self._columns, self._conditions)


class FilteredStoreReader(StoreReader):
    """Does not read what Spark filters out anyway.

    Spark 4.3 keeps what one query of a DataFrame pushed for the DataFrame's other queries, which
    then lack rows. So this is only for users who state that each DataFrame is used once.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes over what the kind can decide, gives back the rest."""
        taken = _kind(self._options).condition_columns
        for one in filters:
            understood = with_filter(self._conditions, one, taken)
            if understood is None:
                yield one
            else:
                self._conditions = understood


def _kind(options: StoreOptions) -> Kind:
    kind = KINDS.get(options.kind)
    if kind is None:
        raise StoreUnreadable(
            f"option kind={options.kind!r} is unknown; known are: {', '.join(sorted(KINDS))}"
        )
    return kind


def _columns(options: StoreOptions) -> Columns:
    kind = _kind(options)
    if options.columns:
        return kind.columns.chosen(options.columns)
    return kind.default_columns(options)
