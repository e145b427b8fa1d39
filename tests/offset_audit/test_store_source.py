"""`aerobee.store` as Spark sees it: rows, chosen columns, filters that readers take over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from aerobee.offset_audit import tables
from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.sources.store.config_rows import CONFIG_TABLES
from tests.golden_stores.conftest import GoldenStore
from tests.offset_audit.store_rows import store_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


def load(spark: SparkSession, golden: GoldenStore, kind: str, **options: str) -> DataFrame:
    reader = spark.read.format("aerobee.store").option("kind", kind)
    return reader.options(**options).load(str(golden.root))


@pytest.mark.thorough
def test_records_come_into_spark_as_they_are_with_bodies_if_wanted(
    spark: SparkSession, tmp_path: Path
) -> None:
    golden = GoldenStore("clean-small", tmp_path)
    frame = load(
        spark, golden, "records", bodies="true", checkBodies="true", partitionBytes="700000"
    )
    rows = {row["physical_offset"]: row.asDict() for row in frame.collect()}
    expected = store_rows("records", golden.root, bodies="true", checkBodies="true")
    for row in expected:
        found = rows.pop(row["physical_offset"])
        found["body"] = bytes(found["body"])
        assert found == {**row, "properties": dict(row["properties"])}
    assert not rows
    assert frame.rdd.getNumPartitions() > 1
    lean = load(spark, golden, "records")
    assert "body" not in lean.columns
    assert "body_sound" not in lean.columns


def test_a_schema_or_an_option_chooses_columns(spark: SparkSession, tmp_path: Path) -> None:
    golden = GoldenStore("ipv6-v2", tmp_path)
    count = golden.manifest["commitLog"]["records"]
    chosen = load(spark, golden, "records", columns="size,topic")
    assert chosen.columns == ["size", "topic"]
    assert chosen.count() == count
    given = spark.read.schema("topic string, size int").format("aerobee.store")
    total = given.load(str(golden.root)).agg(F.sum("size"), F.count("topic")).first()
    assert total is not None
    assert total[1] == count


def test_readers_take_over_filters_and_spark_the_rest(spark: SparkSession, tmp_path: Path) -> None:
    golden = GoldenStore("clean-small", tmp_path)
    columns = "topic,queue_id,physical_offset,store_ms,tags"
    frame = load(spark, golden, "records", columns=columns, pushFilters="true")
    wanted = frame.where(
        "topic in ('OrderEvents', 'AuditTrail') and queue_id = 1 and physical_offset >= 500000"
        " and store_ms > 0 and tags like '%a%'"
    )
    expected = [
        row["physical_offset"]
        for row in store_rows("records", golden.root)
        if row["topic"] in ("OrderEvents", "AuditTrail")
        and row["queue_id"] == 1
        and row["physical_offset"] >= 500_000
        and "a" in (row["tags"] or "")
    ]
    assert sorted(row["physical_offset"] for row in wanted.collect()) == expected
    assert expected
    plan = wanted._jdf.queryExecution().executedPlan().toString()
    assert "Filter" in plan, "tags are Spark's"
    assert "queue_id#" not in plan.split("Filter", 1)[1].split("\n", 1)[0], "the rest is ours"
    entries = load(spark, golden, "entries", pushFilters="true")
    assert entries.where("topic = 'OrderEvents' and queue_offset < 3").count() == 12
    others = load(spark, golden, "entries", pushFilters="true")
    assert others.where("broker_name = 'another'").count() == 0


def test_a_frame_that_was_filtered_once_is_whole_the_next_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Unasked no filter reaches the reader: Spark 4.3 would keep it for the frame's other uses."""
    frame = load(spark, GoldenStore("clean-small", tmp_path), "entries", columns="topic,queue_id")
    firsts, seconds = frame.where("queue_id = 0"), frame.where("queue_id = 1")
    counts = [one.count() for one in (firsts, seconds, firsts.union(seconds))]
    assert 0 < counts[0] < frame.count()
    assert counts[0] + counts[1] == counts[2]


@pytest.mark.parametrize("table", CONFIG_TABLES)
def test_tables_of_a_store_have_the_schema_that_checks_read(
    spark: SparkSession, tmp_path: Path, table: str
) -> None:
    golden = GoldenStore("retained", tmp_path)
    frame = load(spark, golden, table)
    assert frame.schema == schema(tables.COLUMNS[table])
    assert frame.count() == len(store_rows(table, golden.root))


def test_many_paths_are_read_as_one_table(spark: SparkSession, tmp_path: Path) -> None:
    paths = [str(GoldenStore(name, tmp_path).root) for name in ("retained", "ipv6-v2")]
    frame = spark.read.format("aerobee.store").option("kind", "segments").load(paths)
    assert {row["broker_name"] for row in frame.select("broker_name").collect()} == {
        "retained",
        "ipv6-v2",
    }
