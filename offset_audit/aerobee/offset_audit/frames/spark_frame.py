"""Frames of Spark: each method is Spark's own, each expression is parsed by Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as spark

from aerobee.offset_audit.frames.frame import Frame, Named
from aerobee.offset_audit.frames.functions import Column, sql_of
from aerobee.offset_audit.frames.spark_rows import schema, small_frame


class SparkEngine:
    """Makes frames of a session."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def frame(self, columns: str, rows: Sequence[Sequence[object]]) -> SparkFrame:
        return SparkFrame(small_frame(self.session, columns, rows))

    def collect(
        self, parts: Mapping[str, Frame], *, keeps_nulls: bool
    ) -> dict[str, list[dict[str, Any]]]:
        frames = {name: data_of(frame) for name, frame in parts.items()}
        return collect_together(frames, keeps_nulls=keeps_nulls)


class SparkFrame:
    """A DataFrame, with the methods of `Frame`."""

    def __init__(self, data: DataFrame) -> None:
        self.data = data

    @property
    def engine(self) -> SparkEngine:
        return SparkEngine(self.data.sparkSession)

    @property
    def columns(self) -> list[str]:
        return self.data.columns

    def where(self, condition: Named) -> SparkFrame:
        return SparkFrame(self.data.where(sql_of(condition)))

    def select(self, *columns: Named) -> SparkFrame:
        return SparkFrame(self.data.select(*map(_of_spark, columns)))

    def selectExpr(self, *texts: str) -> SparkFrame:
        return SparkFrame(self.data.selectExpr(*texts))

    def withColumn(self, name: str, column: Named) -> SparkFrame:
        return SparkFrame(self.data.withColumn(name, spark.expr(sql_of(column))))

    def withColumns(self, columns: Mapping[str, Named]) -> SparkFrame:
        given = {name: spark.expr(sql_of(one)) for name, one in columns.items()}
        return SparkFrame(self.data.withColumns(given))

    def withColumnRenamed(self, before: str, after: str) -> SparkFrame:
        return SparkFrame(self.data.withColumnRenamed(before, after))

    def with_json(self, name: str, declared: str) -> SparkFrame:
        parsed = spark.from_json(name, schema(declared))
        return SparkFrame(self.data.withColumn(name, parsed))

    def drop(self, *names: str) -> SparkFrame:
        return SparkFrame(self.data.drop(*names))

    def join(self, other: Frame, on: str | Sequence[str], how: str = "inner") -> SparkFrame:
        names = [on] if isinstance(on, str) else list(on)
        return SparkFrame(self.data.join(data_of(other), names, how))

    def join_where(
        self, other: Frame, conditions: Sequence[Column], how: str = "inner"
    ) -> SparkFrame:
        text = " and ".join(one.sql for one in conditions)
        return SparkFrame(self.data.join(data_of(other), spark.expr(text), how))

    def crossJoin(self, other: Frame) -> SparkFrame:
        return SparkFrame(self.data.crossJoin(data_of(other)))

    def groupBy(self, *columns: Named) -> SparkGrouped:
        return SparkGrouped(self.data, columns)

    def agg(self, *columns: Named) -> SparkFrame:
        return SparkFrame(self.data.agg(*map(_with_name, columns)))

    def unionByName(self, other: Frame, allowMissingColumns: bool = False) -> SparkFrame:
        return SparkFrame(
            self.data.unionByName(data_of(other), allowMissingColumns=allowMissingColumns)
        )

    def distinct(self) -> SparkFrame:
        return SparkFrame(self.data.distinct())

    def dropDuplicates(self, names: Sequence[str]) -> SparkFrame:
        return SparkFrame(self.data.dropDuplicates(list(names)))

    def orderBy(self, *columns: Named) -> SparkFrame:
        return SparkFrame(self.data.orderBy(*map(_in_order, columns)))

    def limit(self, rows: int) -> SparkFrame:
        return SparkFrame(self.data.limit(rows))

    def count(self) -> int:
        return self.data.count()

    def collect(self) -> list[dict[str, Any]]:
        return [row.asDict(recursive=True) for row in self.data.collect()]

    def in_one_part(self) -> SparkFrame:
        return SparkFrame(self.data.coalesce(1))

    def small(self) -> SparkFrame:
        return SparkFrame(spark.broadcast(self.data))


class SparkGrouped:
    """Grouped rows of Spark."""

    def __init__(self, data: DataFrame, by: Sequence[Named]) -> None:
        self._grouped = data.groupBy(*map(_of_spark, by))

    def agg(self, *columns: Named) -> SparkFrame:
        return SparkFrame(self._grouped.agg(*map(_with_name, columns)))


def _of_spark(column: Named) -> SparkColumn | str:
    return column if isinstance(column, str) else _with_name(column)


def _with_name(column: Named) -> SparkColumn:
    if isinstance(column, str):
        return spark.expr(column)
    found = spark.expr(column.sql)
    return found if column.called is None else found.alias(column.called)


def _in_order(column: Named) -> SparkColumn | str:
    if isinstance(column, str):
        return column
    text = column.sql.removesuffix(" desc nulls last")
    found = spark.expr(text)
    return found if text == column.sql else found.desc_nulls_last()


def data_of(frame: Frame) -> DataFrame:
    """The DataFrame in a frame of Spark."""
    assert isinstance(frame, SparkFrame), "a frame of another engine"
    return frame.data


def collect_together(
    parts: Mapping[str, DataFrame], *, keeps_nulls: bool
) -> dict[str, list[dict[str, Any]]]:
    """The rows of each part, in one job; the parts must be small.

    Args:
        keeps_nulls: whether a null is None in a row, or left out.
    """
    together: DataFrame | None = None
    nulls = {"ignoreNullFields": "false" if keeps_nulls else "true"}
    for part, frame in parts.items():
        rows = frame.select(
            spark.lit(part).alias("part"), spark.to_json(spark.struct("*"), nulls).alias("row")
        )
        together = rows if together is None else together.unionByName(rows)
    assert together is not None
    found: dict[str, list[dict[str, Any]]] = {part: [] for part in parts}
    for row in together.collect():
        found[row["part"]].append(json.loads(row["row"]))
    return found
