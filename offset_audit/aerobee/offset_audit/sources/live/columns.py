"""How one frame contains all tables of a reading, and how they are extracted again.

Commits, queues, leases and counted minutes are many rows: they have columns in the frame, each name
once. The other tables are few rows with many columns: what only they have is in one column as JSON,
so that millions of commits do not carry it through Spark as nulls.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.columns_of_tables import columns_of
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.frames.spark_frame import SparkFrame, data_of
from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.sources.live.options import READ_TABLES
from aerobee.offset_audit.tables import COLUMNS

WIDE_TABLES: Final = ("commits", "queues", "leases", "minutes")
"""Tables whose columns are in the combined frame."""

TABLE_COLUMN: Final = "table"
REST_COLUMN: Final = "rest"


def table_schema(table: str) -> StructType:
    """The columns of one table, or of the frame of all of them if `table` is empty.

    >>> table_schema("epochs").names
    ['cluster', 'broker_name', 'broker_id', 'epoch', 'start_offset']
    >>> table_schema("").names[:3]
    ['table', 'cluster', 'broker_name']
    """
    if table:
        return schema(COLUMNS[table])
    fields = {TABLE_COLUMN: StructField(TABLE_COLUMN, StringType())}
    for name in WIDE_TABLES:
        for field in schema(COLUMNS[name]).fields:
            known = fields.setdefault(field.name, field)
            assert known.dataType == field.dataType, f"{field.name} has two types"
    return StructType([*fields.values(), StructField(REST_COLUMN, StringType())])


def rest_schema(table: str) -> StructType:
    """The columns of a table that the frame of all tables has no place for."""
    shared = set(table_schema("").names)
    return StructType([field for field in table_schema(table).fields if field.name not in shared])


def split_tables(frame: DataFrame) -> dict[str, DataFrame]:
    """Each table of a DataFrame that holds all of them, by its name in `Tables`, for any job."""
    return {name: data_of(rows) for name, rows in tables_in(SparkFrame(frame)).items()}


def tables_in(frame: Frame) -> dict[str, Frame]:
    """The same for a frame of any engine."""
    return {name: _split(frame, name) for name in READ_TABLES}


def _split(frame: Frame, table: str) -> Frame:
    rows = frame.where(F.col(TABLE_COLUMN) == table)
    shared = set(table_schema("").names)
    rest = {name: kind for name, kind in columns_of(COLUMNS[table]) if name not in shared}
    if not rest:
        return rows.select(*table_schema(table).names)
    declared = ", ".join(f"{name} {kind}" for name, kind in rest.items())
    rows = rows.with_json(REST_COLUMN, declared)

    def column(name: str) -> Column:
        return F.col(f"{REST_COLUMN}.{name}").alias(name) if name in rest else F.col(name)

    return rows.select(*(column(name) for name in table_schema(table).names))
