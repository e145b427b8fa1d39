"""From a broker's answer to Arrow batches: of one table, or of all tables in one frame."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from aerobee.offset_audit.sources.live.asking import BrokerAnswer, LogAnswer
from aerobee.offset_audit.sources.live.columns import (
    REST_COLUMN,
    TABLE_COLUMN,
    rest_schema,
    table_schema,
)
from aerobee.offset_audit.sources.live.options import LOG_TABLE, READ_TABLES
from aerobee.offset_audit.sources.live.snapshots import Columns, broker_row, part_columns
from aerobee.v1 import audit_pb2

BATCH_ROWS: Final = 16_384


class Batches:
    """Makes batches of one schema."""

    def __init__(self, table: str) -> None:
        """`table` empty: all of them."""
        self._is_union = not table
        self.schema = _arrow_schema(table)
        self._rest = {name: rest_schema(name).names for name in READ_TABLES}

    def of_answer(self, answer: BrokerAnswer, wanted: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """All rows of one broker's answer that belong to the wanted tables."""
        tables = set(wanted)
        if "brokers" in tables:
            row = dict.fromkeys(table_schema("brokers").names) | broker_row(answer)
            yield self._batch("brokers", [{name: [value] for name, value in row.items()}])
        if answer.error:
            return
        waiting: list[Columns] = []
        rows, before = 0, ""
        for part in answer.parts:
            if part.WhichOneof("part") not in tables:
                continue
            kind, columns = part_columns(part, answer.broker)
            count = len(columns["cluster"]) if columns else 0
            if waiting and (kind != before or rows >= BATCH_ROWS):
                yield self._batch(before, waiting)
                waiting, rows = [], 0
            if count:
                waiting.append(columns)
                rows, before = rows + count, kind
        if waiting:
            yield self._batch(before, waiting)

    def _batch(self, table: str, pieces: Sequence[Columns]) -> pa.RecordBatch:
        found: dict[str, Sequence[Any]] = {
            name: list(chain.from_iterable(piece[name] for piece in pieces)) for name in pieces[0]
        }
        rows = len(found["cluster"])
        if self._is_union:
            found[TABLE_COLUMN] = [table] * rows
            if rest := self._rest[table]:
                found[REST_COLUMN] = _as_json({name: found[name] for name in rest})
        return _record_batch(found, rows, self.schema)


def log_batch(answer: LogAnswer) -> Iterator[pa.RecordBatch]:
    """LOG_RANGES of one broker. If it cannot read its log, or did not reach its end, a range has no
    checksum."""
    ranges = list(answer.ranges)
    if answer.error and answer.identity.broker_name:
        # It is unknown how much is missing.
        reached = ranges[-1].end if ranges else 0
        ranges.append(audit_pb2.LogChecksum(begin=reached, end=reached))
    if not ranges:
        return
    rows = len(ranges)
    found: Columns = {
        "cluster": [answer.identity.cluster] * rows,
        "broker_name": [answer.identity.broker_name] * rows,
        "broker_id": [answer.identity.broker_id] * rows,
        "begin": [each.begin for each in ranges],
        "end": [each.end for each in ranges],
        "checksum": [
            None if each.HasField("fault") or each.begin == each.end else each.checksum
            for each in ranges
        ],
    }
    yield _record_batch(found, rows, _arrow_schema(LOG_TABLE))


def _record_batch(columns: Columns, rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Columns that it lacks are null."""
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arrow_schema(table: str) -> pa.Schema:
    schema: pa.Schema = to_arrow_schema(table_schema(table), timezone="UTC")
    return schema


def _as_json(columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """One object with these members for each row; nulls are left out."""
    return [
        json.dumps({name: one for name, one in zip(columns, row, strict=True) if one is not None})
        for row in zip(*columns.values(), strict=True)
    ]
