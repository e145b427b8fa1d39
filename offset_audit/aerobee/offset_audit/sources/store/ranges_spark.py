"""The interface to Spark for everything that reduces stores: tables from one reading, and drills.

`split_summaries` makes of the kind `summaries` the tables that it consists of. `queue_drill` and
`key_drill` give the functions that `Tables.queue_rows` and `Tables.key_rows` are: from blocks, as a
DataFrame, to their rows. Spark plans the second reading from the blocks themselves, so nothing is
collected, and a stretch of the log is read once for all blocks that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.frames import functions as columns
from aerobee.offset_audit.frames.frame import Engine, Frame
from aerobee.offset_audit.sources.store.files import log_segments
from aerobee.offset_audit.sources.store.folders import Origin, find_stores
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts, store_facts
from aerobee.offset_audit.sources.store.ranges_rows import (
    COLUMNS,
    KEY_ROWS,
    QUEUE_ROWS,
    SUMMARY_TABLES,
)
from aerobee.offset_audit.sources.store.ranges_rows_of_blocks import (
    UNIT_BYTES,
    Block,
    entry_rows,
    index_files_of,
    index_key_rows,
    log_key_rows,
    log_rows,
    unit_span,
)
from aerobee.offset_audit.tables import ORIGIN

_Facts: TypeAlias = Mapping[str, StoreFacts]
_Rows: TypeAlias = Sequence[Mapping[str, Any]]
_ReadGroup: TypeAlias = Callable[[_Facts, _Rows], Iterator[Any]]

SparkDrill: TypeAlias = Callable[[DataFrame], DataFrame]

_FILES: Final = "store string, number int, block long"


def split_summaries(rows: Frame) -> dict[str, Frame]:
    """The tables of kind `summaries` by name; persist `rows` first, or each is a separate
    reading."""
    return {
        table: rows.where(columns.col("table") == table).select(*COLUMNS[table].names)
        for table in SUMMARY_TABLES
    }


def facts_of(options: Sequence[StoreOptions]) -> dict[str, StoreFacts]:
    """What drills need to know about stores, by their roots. Runs on the driver."""
    return {
        store.root: store_facts(store, delays_ms=one.delays_ms, index_slots=one.index_slots)
        for one in options
        for store in find_stores(one.paths, one.names)
    }


def log_begins(engine: Engine, facts: _Facts) -> Frame:
    """`store` and `log_begin`, from the names of the segments that are there now."""
    found = [
        (root, segments[0].base)
        for root, one in facts.items()
        if (segments := log_segments(one.store))
    ]
    return engine.frame("store string, log_begin long", found)


def first_whole_minutes(engine: Engine, facts: _Facts) -> Frame:
    """The origin of each store, and `whole_from`: the first minute for which its log is
    complete."""
    found: dict[Origin, int] = {}
    for one in facts.values():
        origin = one.store.origin
        found[origin] = max(found.get(origin, 0), one.whole_minutes[0])
    rows = [
        (origin.cluster, origin.broker_name, origin.broker_id, minute)
        for origin, minute in found.items()
    ]
    return engine.frame(f"{ORIGIN}, whole_from long", rows)


def queue_drill(facts: _Facts) -> SparkDrill:
    """QUEUE_ROWS of blocks with `store`, `topic`, `queue_id`, `block`, `first_position` and
    `last_position`."""

    spans = {root: unit_span(one.store) for root, one in facts.items()}

    def drill(blocks: DataFrame) -> DataFrame:
        wanted = blocks.select("store", "topic", "queue_id", "block").distinct()
        # A queue's blocks stay together: its folder is listed about once.
        entries = wanted.repartition("store", "topic", "queue_id").mapInArrow(
            partial(_entries_of, facts), COLUMNS[QUEUE_ROWS].ddl
        )
        units = F.sequence(_unit_of("first_position", spans), _unit_of("last_position", spans))
        by_unit = blocks.withColumn("unit", F.explode(units)).groupBy("store", "unit")
        log = by_unit.applyInArrow(_of_group(_records_of, facts), COLUMNS[QUEUE_ROWS].ddl)
        return entries.unionByName(log)

    return drill


def _unit_of(position: str, spans: Mapping[str, tuple[int, int]]) -> Column:
    """The unit that contains a position, or the nearest one."""
    firsts = F.create_map(
        *(F.lit(it) for root, (first, _) in spans.items() for it in (root, first))
    )
    lasts = F.create_map(*(F.lit(it) for root, (_, last) in spans.items() for it in (root, last)))
    unit = F.expr(f"{position} div {UNIT_BYTES}")
    clipped = F.least(F.greatest(unit, firsts[F.col("store")]), lasts[F.col("store")])
    return F.when(unit.isNotNull(), clipped)


def key_drill(facts: _Facts) -> SparkDrill:
    """KEY_ROWS of blocks with `store` and `block`."""

    def drill(blocks: DataFrame) -> DataFrame:
        wanted = blocks.select("store", "block").distinct()
        log = wanted.repartition("store", "block").mapInArrow(
            partial(_log_keys_of, facts), COLUMNS[KEY_ROWS].ddl
        )
        files = wanted.groupBy("store").applyInArrow(_of_group(_files_of, facts), _FILES)
        index = files.groupBy("store", "number").applyInArrow(
            _of_group(_index_keys_of, facts), COLUMNS[KEY_ROWS].ddl
        )
        # A key that a broker filed twice, in two files, is one key.
        return log.unionByName(index.dropDuplicates(["store", "position", "key_hash"]))

    return drill


def _of_group(read: _ReadGroup, facts: _Facts) -> Callable[[Any], Any]:
    """What Spark calls for each group: it gets the group's rows and yields batches one by one."""

    def of_group(batches: Iterator[Any]) -> Iterator[Any]:
        return read(facts, [row for batch in batches for row in batch.to_pylist()])

    # Spark uses these types to tell streams of batches from whole tables.
    stream = Iterator[pa.RecordBatch]
    of_group.__annotations__ = {"batches": stream, "return": stream}
    return of_group


def _entries_of(facts: _Facts, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for row in batch.to_pylist():
            block = Block(row["topic"], row["queue_id"], row["block"])
            yield from entry_rows(facts[row["store"]], block)


def _records_of(facts: _Facts, rows: _Rows) -> Iterator[Any]:
    blocks = {Block(row["topic"], row["queue_id"], row["block"]) for row in rows}
    return log_rows(facts[rows[0]["store"]], rows[0]["unit"], blocks)


def _log_keys_of(facts: _Facts, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for row in batch.to_pylist():
            yield from log_key_rows(facts[row["store"]], row["block"])


def _files_of(facts: _Facts, rows: _Rows) -> Iterator[Any]:
    store = rows[0]["store"]
    found = list(index_files_of(facts[store], [row["block"] for row in rows]))
    columns = {
        "store": pa.array([store] * len(found), pa.string()),
        "number": pa.array([number for number, _ in found], pa.int32()),
        "block": pa.array([block for _, block in found], pa.int64()),
    }
    yield pa.RecordBatch.from_pydict(columns)


def _index_keys_of(facts: _Facts, rows: _Rows) -> Iterator[Any]:
    blocks = [row["block"] for row in rows]
    return index_key_rows(facts[rows[0]["store"]], rows[0]["number"], blocks)
