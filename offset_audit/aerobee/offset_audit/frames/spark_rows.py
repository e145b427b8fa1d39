"""Spark's schemas of declared columns, and small tables as DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from aerobee.offset_audit.frames.columns_of_tables import columns_of, split

_PLAIN_TYPES: Final[dict[str, type[DataType]]] = {
    "string": StringType,
    "int": IntegerType,
    "long": LongType,
    "boolean": BooleanType,
    "double": DoubleType,
}


def schema(columns: str) -> StructType:
    """Spark's schema of a declared table. Parsed here and not by Spark, whose parser needs a JVM:
    sources are also asked for their schema in worker processes."""
    return StructType([StructField(name, _type(text)) for name, text in columns_of(columns)])


def _type(text: str) -> DataType:
    """
    >>> _type("array<struct<topic: string, is_sql: boolean>>").simpleString()
    'array<struct<topic:string,is_sql:boolean>>'
    """
    text = text.strip()
    if text.startswith("array<"):
        return ArrayType(_type(text.removeprefix("array<").removesuffix(">")))
    if text.startswith("struct<"):
        fields = split(text.removeprefix("struct<").removesuffix(">"), ":")
        parts = (field.split(":", 1) for field in fields)
        return StructType([StructField(name.strip(), _type(kind)) for name, kind in parts])
    if text.startswith("decimal("):
        precision, scale = text.removeprefix("decimal(").removesuffix(")").split(",")
        return DecimalType(int(precision), int(scale))
    return _PLAIN_TYPES[text]()


def empty_frame(spark: SparkSession, columns: str) -> DataFrame:
    """No rows, in a form that Spark optimises away together with everything that only joins it."""
    session: Any = spark
    java = session._jsparkSession
    return DataFrame(
        java.createDataFrame(
            session._jvm.java.util.ArrayList(), java.parseDataType(schema(columns).json())
        ),
        session,
    )


def small_frame(spark: SparkSession, columns: str, rows: Sequence[Sequence[object]]) -> DataFrame:
    """A few rows from Python, as part of every plan that uses them."""
    structure = schema(columns)
    if not rows:
        return empty_frame(spark, columns)
    arrow = to_arrow_schema(structure, timezone="UTC")
    arrays = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), arrow, strict=True)
    ]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), structure)
