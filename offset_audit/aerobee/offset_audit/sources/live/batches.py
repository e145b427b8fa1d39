"""From a broker's packed columns to Arrow batches, with numpy; rows are never processed one by one.

What a broker does not know is null: -1 for numbers that are never negative, or an empty name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from aerobee.offset_audit.sources.live.asking import BrokerAnswer, LogAnswer
from aerobee.offset_audit.sources.live.columns import (
    LOG_TABLE,
    READ_TABLES,
    REST_COLUMN,
    TABLE_COLUMN,
    rest_schema,
    table_schema,
)
from aerobee.v1 import audit_pb2, broker_pb2, common_pb2

BATCH_ROWS = 16_384
MS_PER_MINUTE = 60_000

Columns = dict[str, pa.Array]


class Batches:
    """Makes batches of one schema: of one table, or of all tables in one frame."""

    def __init__(self, table: str) -> None:
        """`table` empty: all of them."""
        self._is_union = not table
        self.schema = _arrow(table_schema(table))
        self._of_table = {name: _arrow(table_schema(name)) for name in READ_TABLES}
        self._rest = {name: rest_schema(name).names for name in READ_TABLES}

    def of_answer(self, answer: BrokerAnswer, wanted: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """All rows of one broker's answer that belong to the wanted tables."""
        tables = set(wanted)
        if "brokers" in tables:
            yield self._batch("brokers", [_broker_row(answer, self._of_table["brokers"])])
        if answer.error:
            return
        origin = _Origin(answer)
        waiting: list[Columns] = []
        rows, before = 0, ""
        for part in answer.parts:
            kind = str(part.WhichOneof("part"))
            decode = _DECODERS.get(kind)
            if decode is None or kind not in tables:
                continue
            if waiting and (kind != before or rows >= BATCH_ROWS):
                yield self._batch(before, waiting)
                waiting, rows = [], 0
            columns, count = decode(getattr(part, kind), origin, self._of_table[kind])
            if count:
                waiting.append(origin.columns(count) | columns)
                rows, before = rows + count, kind
        if waiting:
            yield self._batch(before, waiting)

    def _batch(self, table: str, pieces: Sequence[Columns]) -> pa.RecordBatch:
        found = {
            name: pa.concat_arrays([piece[name] for piece in pieces])
            if len(pieces) > 1
            else pieces[0][name]
            for name in pieces[0]
        }
        rows = len(found["cluster"])
        if self._is_union:
            found[TABLE_COLUMN] = _repeated(table, rows)
            if rest := self._rest[table]:
                found[REST_COLUMN] = _as_json({name: found[name] for name in rest}, rows)
        arrays = [
            found[field.name] if field.name in found else pa.nulls(rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


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
    unread = [each.HasField("fault") or each.begin == each.end for each in ranges]
    rows = len(ranges)
    columns = _arrow(table_schema(LOG_TABLE))
    found = {
        "cluster": _repeated(answer.identity.cluster, rows),
        "broker_name": _repeated(answer.identity.broker_name, rows),
        "broker_id": pa.array([answer.identity.broker_id] * rows, pa.int32()),
        "begin": pa.array([each.begin for each in ranges], pa.int64()),
        "end": pa.array([each.end for each in ranges], pa.int64()),
        "checksum": pa.array([each.checksum for each in ranges], pa.int64(), mask=np.array(unread)),
    }
    arrays = [found.get(one.name, pa.nulls(rows, one.type)) for one in columns]
    yield pa.RecordBatch.from_arrays(arrays, schema=columns)


def _arrow(columns: StructType) -> pa.Schema:
    schema: pa.Schema = to_arrow_schema(columns, timezone="UTC")
    return schema


def _as_json(columns: Columns, rows: int) -> pa.Array:
    """One object with these members for each row; nulls are left out."""
    values = [column.to_pylist() for column in columns.values()]
    texts = [
        json.dumps(
            {
                name: column[row]
                for name, column in zip(columns, values, strict=True)
                if column[row] is not None
            }
        )
        for row in range(rows)
    ]
    return pa.array(texts, pa.string())


def _repeated(text: str, rows: int) -> pa.Array:
    return pa.array([text], pa.string()).take(pa.array(np.zeros(rows, np.int64)))


class _Origin:
    """Who answered, and when it had read what."""

    def __init__(self, answer: BrokerAnswer) -> None:
        broker = answer.broker
        identity = broker.stats.identity
        self.cluster: str = identity.cluster
        self.broker_name: str = identity.broker_name
        self.broker_id: int = identity.broker_id
        self.commits_read_at_ms = broker.commits_read_at_ms
        self.ends_read_at_ms = broker.ends_read_at_ms

    def columns(self, rows: int) -> Columns:
        return {
            "cluster": _repeated(self.cluster, rows),
            "broker_name": _repeated(self.broker_name, rows),
            "broker_id": pa.array(np.full(rows, self.broker_id, np.int32)),
        }


def _longs(values: Sequence[int], *, has_unknown: bool = False) -> pa.Array:
    """-1 is null if a value may be unknown."""
    found = np.fromiter(values, np.int64, len(values))
    return pa.array(found, mask=found == -1) if has_unknown else pa.array(found)


def _optional_longs(values: Sequence[int], rows: int) -> pa.Array:
    """A column that was perhaps not asked for."""
    return _longs(values, has_unknown=True) if len(values) else pa.nulls(rows, pa.int64())


def _ints(values: Sequence[int]) -> pa.Array:
    return pa.array(np.fromiter(values, np.int32, len(values)))


def _names(names: Sequence[str], codes: Sequence[int]) -> pa.Array:
    """The name of each row; an empty name is not known."""
    known = pa.array([name or None for name in names], pa.string())
    return known.take(pa.array(np.fromiter(codes, np.int64, len(codes))))


def _same(value: int, rows: int) -> pa.Array:
    return pa.array(np.full(rows, value, np.int64))


# ---------------------------------------------------------------------- tables


def _topics(part: audit_pb2.TopicRows, _: _Origin, __: pa.Schema) -> tuple[Columns, int]:
    return {
        "topic": pa.array(list(part.topics), pa.string()),
        "read_queue_count": _ints(part.read_queue_counts),
        "write_queue_count": _ints(part.write_queue_counts),
        "perm": _ints(part.perms),
        "revision": _longs(part.revisions),
    }, len(part.topics)


def _queues(part: audit_pb2.QueueRows, origin: _Origin, _: pa.Schema) -> tuple[Columns, int]:
    rows = len(part.queue_ids)
    return {
        "topic": _names(part.topics, part.topic_codes),
        "queue_id": _ints(part.queue_ids),
        "min_offset": _longs(part.min_offsets),
        "max_offset": _longs(part.max_offsets),
        "last_store_ms": _optional_longs(part.last_store_ms, rows),
        "read_at_ms": _same(origin.ends_read_at_ms, rows),
    }, rows


def _commits(part: audit_pb2.CommitRows, origin: _Origin, _: pa.Schema) -> tuple[Columns, int]:
    rows = len(part.queue_ids)
    return {
        "group": _names(part.groups, part.group_codes),
        "topic": _names(part.topics, part.topic_codes),
        "queue_id": _ints(part.queue_ids),
        "offset": _longs(part.offsets),
        "lease_epoch": _longs(part.lease_epochs, has_unknown=True),
        "committed_at_ms": _longs(part.committed_at_ms, has_unknown=True),
        "client_id": _names(part.clients, part.client_codes),
        "is_reset": pa.array(np.fromiter(part.resets, np.bool_, rows)),
        "first_unread_ms": _optional_longs(part.first_unread_ms, rows),
        "matching_unread": _optional_longs(part.matching_unread, rows),
        "read_at_ms": _same(origin.commits_read_at_ms, rows),
    }, rows


def _leases(part: audit_pb2.LeaseRows, _: _Origin, __: pa.Schema) -> tuple[Columns, int]:
    return {
        "group": _names(part.groups, part.group_codes),
        "topic": _names(part.topics, part.topic_codes),
        "queue_id": _ints(part.queue_ids),
        "client_id": _names(part.clients, part.client_codes),
        "lease_epoch": _longs(part.lease_epochs),
    }, len(part.queue_ids)


def _members(part: audit_pb2.MemberRows, _: _Origin, schema: pa.Schema) -> tuple[Columns, int]:
    members = part.members
    subscriptions = [
        [
            {
                "topic": one.topic,
                "expression": one.filter.expression,
                "is_sql": one.filter.type == broker_pb2.SQL92,
            }
            for one in member.subscriptions
        ]
        for member in members
    ]
    return {
        "group": _names(part.groups, part.group_codes),
        "client_id": pa.array([member.client_id for member in members], pa.string()),
        "broadcasting": pa.array([member.broadcasting for member in members], pa.bool_()),
        "last_heartbeat_age_ms": _longs([member.last_heartbeat_age_ms for member in members]),
        "subscriptions": pa.array(subscriptions, schema.field("subscriptions").type),
    }, len(members)


def _epochs(part: audit_pb2.EpochRows, _: _Origin, __: pa.Schema) -> tuple[Columns, int]:
    return {
        "epoch": _longs(part.epochs),
        "start_offset": _longs(part.start_offsets),
    }, len(part.epochs)


def _segments(part: audit_pb2.SegmentRows, _: _Origin, __: pa.Schema) -> tuple[Columns, int]:
    return {
        "position": _longs(part.positions),
        "size": _longs(part.sizes),
        "first_store_ms": _longs(part.first_store_ms, has_unknown=True),
    }, len(part.positions)


def _minutes(part: audit_pb2.MinuteRows, origin: _Origin, _: pa.Schema) -> tuple[Columns, int]:
    rows = len(part.minutes)
    minutes = np.fromiter(part.minutes, np.int64, rows)
    # The minute of the reading is not complete yet.
    present = origin.ends_read_at_ms // MS_PER_MINUTE
    return {
        "tier": _repeated("ACKNOWLEDGED", rows),
        "group": pa.nulls(rows, pa.string()),
        "topic": _names(part.topics, part.topic_codes),
        "minute": pa.array(minutes),
        "messages": _longs(part.acknowledged),
        "is_whole": pa.array((minutes >= part.first_whole_minute) & (minutes < present)),
    }, rows


def _waiting(part: audit_pb2.WaitingRows, _: _Origin, __: pa.Schema) -> tuple[Columns, int]:
    return {
        "topic": pa.array([topic or None for topic in part.topics], pa.string()),
        "kind": pa.array(["TIMER" if is_timer else "DELAY" for is_timer in part.timers]),
        "messages": _longs(part.messages, has_unknown=True),
        "first_due_ms": _longs(part.first_due_ms, has_unknown=True),
    }, len(part.topics)


_Decode = Callable[[Any, _Origin, pa.Schema], tuple[Columns, int]]

_DECODERS: Final[Mapping[str, _Decode]] = {
    "topics": _topics,
    "queues": _queues,
    "commits": _commits,
    "leases": _leases,
    "members": _members,
    "epochs": _epochs,
    "segments": _segments,
    "minutes": _minutes,
    "waiting": _waiting,
}


def _broker_row(answer: BrokerAnswer, schema: pa.Schema) -> Columns:
    """The row of a broker that was asked, whether it answered or not."""
    asked = answer.asked
    values: dict[str, object] = {
        "cluster": asked.cluster,
        "broker_name": asked.broker_name,
        "broker_id": asked.broker_id,
        "address": asked.address,
        "answered": not answer.error,
        "error": answer.error or None,
        "asked_at_ms": answer.asked_at_ms,
        "answered_at_ms": answer.answered_at_ms,
    }
    if not answer.error:
        values |= _answered_values(answer.broker)
    names = table_schema("brokers").names
    return {name: pa.array([values.get(name)], schema.field(name).type) for name in names}


def _answered_values(broker: audit_pb2.SnapshotBroker) -> dict[str, object]:
    stats = broker.stats
    return {
        "cluster": stats.identity.cluster,
        "broker_name": stats.identity.broker_name,
        "broker_id": stats.identity.broker_id,
        "role": common_pb2.BrokerRole.Name(stats.role),
        # A slave that has not been told one by a master yet has 0.
        "epoch": stats.epoch if stats.epoch or stats.role == common_pb2.MASTER else None,
        "instance": broker.instance,
        "incarnation": broker.incarnation,
        "master_id": broker.master_id if broker.master_id >= 0 else None,
        "in_sync": list(broker.in_sync),
        "flush_mode": stats.flush_mode,
        "replication_mode": stats.replication_mode,
        "version": stats.version,
        "log_min_offset": stats.log_min_offset,
        "appended_end": stats.log_appended_end,
        "flushed_end": stats.log_flushed_end,
        "confirmed_end": stats.log_confirmed_end,
        "dispatched_end": stats.log_dispatched_end,
        "misplaced_records": stats.misplaced_records,
        "not_writable_reason": stats.not_writable_reason,
        "commits_read_at_ms": broker.commits_read_at_ms,
        "ends_read_at_ms": broker.ends_read_at_ms,
    }
