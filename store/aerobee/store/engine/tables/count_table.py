"""timermetrics and transactionMetrics: how many messages of each topic wait to be delivered.

Both files are one line of JSON: a data version, and per topic a count with the time it changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from aerobee.store.engine.tables.config_document import (
    ConfigDocument,
    named_members,
    parse_document,
    take_member,
    take_object,
)
from aerobee.store.format.json_config import encode_text

TIMER_METRICS_PATH = "config/timermetrics"
TRANSACTION_METRICS_PATH = "config/transactionMetrics"

_TABLE_NAMES = ("timingCount", "transactionCount")


@dataclass(frozen=True, slots=True)
class TopicCount:
    """Waiting messages, and when that number last changed (Unix ms)."""

    count: int
    changed_ms: int


class CountTable:
    """One of the two files; `table_name` is the member with the counts."""

    def __init__(self, table_name: str) -> None:
        assert table_name in _TABLE_NAMES, table_name
        self._table_name = table_name
        self._counts: dict[str, TopicCount] = {}
        self._document = ConfigDocument()

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The table in a file's bytes, under the name that the file has. Raises ValueError for
        anything else."""
        document = parse_document(data)
        names = [name for name in _TABLE_NAMES if name in document]
        if len(names) != 1:
            raise ValueError(f"one of {', '.join(_TABLE_NAMES)} must be there")
        table = cls(names[0])
        for topic, value in take_object(document, names[0]).items():
            bean = named_members(value, topic)
            table._counts[topic] = TopicCount(
                take_member(bean, "count", 0), take_member(bean, "timeStamp", 0)
            )
        table._document = ConfigDocument.load(document)
        return table

    def add(self, topic: str, count: int, now_ms: int) -> None:
        """Add this many waiting messages of the topic, or remove them if negative."""
        known = self._counts.get(topic, TopicCount(0, 0))
        self._counts[topic] = TopicCount(known.count + count, now_ms)
        self._document.changes += 1

    def counts(self) -> dict[str, TopicCount]:
        """By topic; a copy."""
        return dict(self._counts)

    @property
    def changes(self) -> int:
        """How often the table has changed since it was created; savers compare it."""
        return self._document.changes

    def as_json(self) -> dict[str, Any]:
        """The file's members as of now."""
        counts = {
            topic: {"count": known.count, "timeStamp": known.changed_ms}
            for topic, known in self._counts.items()
        }
        members = {**self._document.unknown, self._table_name: counts}
        return {"dataVersion": self._document.version, **members}

    def snapshot_bytes(self, now_ms: int) -> bytes:
        """The whole file as of now."""
        self._document.raise_version(now_ms)
        text = json.dumps(self.as_json(), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return encode_text(text)
