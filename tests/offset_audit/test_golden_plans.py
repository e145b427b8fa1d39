"""Spark's plans for all rules are what they were: one scan of each table that a rule needs, with
only the columns and rows that it uses, and nothing in Python.

After a change of a rule, AEROBEE_WRITE_PLANS=1 writes golden_plans.txt anew; read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.tables import QUEUES
from tests.offset_audit.plans import StoredTables, all_plans, described

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

GOLDEN = Path(__file__).with_name("golden_plans.txt")
WHOLE_TEXT = {
    "spark.sql.maxPlanStringLength": "10000000",
    "spark.sql.maxMetadataStringLength": "100000",
    "spark.sql.debug.maxToStringFields": "1000",
}


@pytest.fixture
def planner(spark_of_many_rows: SparkSession) -> Iterator[SparkSession]:
    """A session that plans as for large audits, and writes plans out."""
    spark = spark_of_many_rows
    before = {key: spark.conf.get(key, None) for key in WHOLE_TEXT}
    for key, value in WHOLE_TEXT.items():
        spark.conf.set(key, value)
    yield spark
    for key, earlier in before.items():
        if earlier is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, earlier)


def test_the_plans_of_all_rules_are_what_they_were(planner: SparkSession, tmp_path: Path) -> None:
    found = all_plans(planner, tmp_path)
    if os.environ.get("AEROBEE_WRITE_PLANS"):
        GOLDEN.write_text(found)
    assert found.split("\n") == GOLDEN.read_text().split("\n")
    assert "python:" not in found


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda rows: rows.where("coalesce(topic, '') = 't'").select("queue_id"),
        lambda rows: rows.where("topic = 't'").distinct().select("queue_id"),
        lambda rows: rows.where("topic = 't'").select("queue_id").union(rows.select("queue_id")),
        lambda rows: rows.where("topic = 't'").join(rows, "queue_id").select("queue_id"),
    ],
    ids=["a lost filter", "more columns", "a second scan", "a join with itself"],
)
def test_what_a_rule_must_not_lose_is_in_the_text(
    planner: SparkSession, tmp_path: Path, spoiled: Callable[[DataFrame], DataFrame]
) -> None:
    rows = StoredTables(planner, tmp_path).frame("queues", schema(QUEUES)).data
    plain = described(rows.where("topic = 't'").select("queue_id"))
    assert plain == "  scan queues: queue_id, topic; IsNotNull(topic), EqualTo(topic,t)\n"
    assert described(spoiled(rows)) != plain
