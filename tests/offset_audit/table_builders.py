"""Tables as readers give them, made of rows that name only what a test is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import Row

from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.frame import Engine, Frame
from aerobee.offset_audit.tables import COLUMNS, Tables, empty_tables

NOW_MS = 1_790_000_000_000
CLUSTER = "c"
BROKER = "broker-a"

_ORIGIN: Mapping[str, Any] = {"cluster": CLUSTER, "broker_name": BROKER, "broker_id": 0}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "brokers": {
        "answered": True,
        "role": "MASTER",
        "epoch": 1,
        "master_id": 0,
        "in_sync": [0],
        "appended_end": 1_000_000,
        "flushed_end": 1_000_000,
        "confirmed_end": 1_000_000,
        "dispatched_end": 1_000_000,
        "log_min_offset": 0,
        "commits_read_at_ms": NOW_MS,
        "ends_read_at_ms": NOW_MS,
        "asked_at_ms": NOW_MS - 5,
        "answered_at_ms": NOW_MS + 5,
    },
    "topics": {"read_queue_count": 1, "write_queue_count": 1, "perm": 6, "revision": 1},
    "queues": {
        "topic": "t",
        "queue_id": 0,
        "min_offset": 0,
        "max_offset": 100,
        "read_at_ms": NOW_MS,
    },
    "commits": {
        "topic": "t",
        "queue_id": 0,
        "lease_epoch": 1,
        "committed_at_ms": NOW_MS - 1_000,
        "client_id": "",
        "is_reset": False,
        "read_at_ms": NOW_MS,
    },
    "leases": {"topic": "t", "queue_id": 0, "lease_epoch": 1},
    "members": {"broadcasting": False, "last_heartbeat_age_ms": 100},
    "registry_brokers": {"cluster": CLUSTER, "revision": 1, "broker_id": 0, "stale": False},
    "registry_groups": {"cluster": CLUSTER, "revision": 1, "epoch": 1, "master_id": 0},
    "registry_topics": {"cluster": CLUSTER, "revision": 1, "broker_name": BROKER, "perm": 6},
    "journal": {
        "entry": 0,
        "topic": "t",
        "queue_id": 0,
        "lease_epoch": 1,
        "client_id": "",
        "kind": "commit",
    },
    "history": {
        "cluster": CLUSTER,
        "broker_name": BROKER,
        "run_id": "earlier",
        "topic": "t",
        "queue_id": 0,
        "state": "OK",
    },
    "earlier_findings": {"cluster": CLUSTER, "run_id": "earlier"},
    "queue_ranges": {"store": "/store", "source": "LOG", "topic": "t", "queue_id": 0, "block": 0},
    "log_ranges": {"store": "/store"},
    "index_ranges": {"store": "/store", "source": "LOG"},
    "faults": {"store": "/store"},
    "pending": {"store": "/store", "resolved": False},
}


class TableRows:
    """Rows of one run's tables; what a row does not name has its default, or is null."""

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, table: str, **values: Any) -> None:
        """One more row. Raises KeyError for a column that the table does not have."""
        names = names_of(COLUMNS[table])
        if unknown := values.keys() - set(names):
            raise KeyError(f"{table} has no columns {sorted(unknown)}")
        known = {**_ORIGIN, **DEFAULTS.get(table, {}), **values}
        self._rows.setdefault(table, []).append({name: known.get(name) for name in names})

    def member(self, group: str, client_id: str, *topics: str, **values: Any) -> None:
        """A member of a group that subscribes to whole topics."""
        subscriptions = [{"topic": topic, "expression": "*", "is_sql": False} for topic in topics]
        self.add("members", group=group, client_id=client_id, subscriptions=subscriptions, **values)

    def forget(self, table: str) -> None:
        """As if nothing had been added to it."""
        self._rows.pop(table, None)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """What was added to one table."""
        return list(self._rows.get(table, ()))

    def tables(self, engine: Engine) -> Tables:
        """All tables; those without rows are empty."""
        given: dict[str, Any] = {
            name: frame(engine, COLUMNS[name], rows) for name, rows in self._rows.items()
        }
        return replace(empty_tables(engine), **given)


def frame(engine: Engine, columns: str, rows: Iterable[Mapping[str, Any]]) -> Frame:
    """Rows as a frame, without a worker process of Spark."""
    names = names_of(columns)
    return engine.frame(columns, [[row.get(name) for name in names] for row in rows])


def as_rows(frame: Frame) -> list[Row]:
    """Its rows, whose values are attributes."""
    return [Row(**one) for one in frame.collect()]
