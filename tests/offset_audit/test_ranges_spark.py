"""Through Spark: one reading fills all tables, and drills give the rows that sums were made of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from aerobee.offset_audit.frames.spark_frame import SparkFrame, data_of
from aerobee.offset_audit.run.reading import drills
from aerobee.offset_audit.run.spark_run import SparkRun
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.ranges_rows import (
    SUMMARIES,
    SUMMARY_TABLES,
)
from aerobee.offset_audit.sources.store.summaries import facts_of, split_summaries
from tests.offset_audit.store_rows import store_rows
from tests.support.damaged_stores import index_file, make_store, overwrite, queue_file

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One entry of a queue and one slot of the index are not what they should be."""
    root = tmp_path_factory.mktemp("ranges") / "store"
    make_store(root)
    file = queue_file(root, "orders", 1, 2)
    data = bytearray(file.read_bytes())
    data[3 * 20 + 19] ^= 1  # the tags code of queue offset 23
    file.write_bytes(bytes(data))
    overwrite(index_file(root, 0), 40, bytes(4))
    return root


def test_one_reading_fills_every_table_and_drills_find_the_differing_rows(
    spark: SparkSession, store: Path
) -> None:
    rows = spark.read.format("aerobee.store").option("kind", SUMMARIES).load(str(store)).persist()
    tables = {name: data_of(one) for name, one in split_summaries(SparkFrame(rows)).items()}
    counted = {row["table"]: row["count"] for row in rows.groupBy("table").count().collect()}
    assert counted == {
        table: len(alone) for table in SUMMARY_TABLES if (alone := store_rows(table, store))
    }
    sides = (
        tables["queue_ranges"]
        .groupBy("store", "topic", "queue_id", "block")
        .agg(
            F.sum(F.when(F.col("source") == "LOG", F.col("digest"))).alias("log"),
            F.sum(F.when(F.col("source") == "ENTRIES", F.col("digest"))).alias("entries"),
            F.min("first_position").alias("first_position"),
            F.max("last_position").alias("last_position"),
        )
    )
    # What a flipped bit in an entry's position leads to is no reason to go there.
    absurd = {"first_position": F.lit(-(1 << 62)), "last_position": F.lit(1 << 62)}
    differing = sides.where("log != entries").withColumns(absurd)
    facts = facts_of([StoreOptions.parse({"path": str(store)})])
    queue_rows, key_rows = drills(SparkRun(spark), facts)
    found = queue_rows(SparkFrame(differing)).collect()
    assert {(row["topic"], row["queue_id"]) for row in found} == {("orders", 1)}
    assert Counter(row["source"] for row in found) == {"LOG": 40, "ENTRIES": 40}
    compared = Counter(
        (row["queue_offset"], row["position"], row["size"], row["tags_code"]) for row in found
    )
    assert {offset for (offset, *_), times in compared.items() if times == 1} == {23}
    keys = (
        tables["index_ranges"]
        .groupBy("store", "block")
        .agg(
            F.sum(F.when(F.col("source") == "LOG", F.col("keys"))).alias("log"),
            F.sum(F.when(F.col("source") == "INDEX", F.col("keys"))).alias("index"),
        )
    )
    lost = keys.select(F.sum("log") - F.sum("index")).head()
    sources = Counter(row["source"] for row in key_rows(SparkFrame(keys)).collect())
    assert lost is not None
    assert sources["LOG"] - sources["INDEX"] == lost[0] > 0
    rows.unpersist()
