"""What Spark asks of the message source, without Spark: batches, and streams with a checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

from aerobee.offset_audit.sources.messages.options import MessageOptions, parse_options
from aerobee.offset_audit.sources.messages.stream_reader import MessageStreamReader

Document = dict[str, Any]
Row = dict[str, Any]


def options_of(nameservers: str, *, is_streaming: bool, **given: Any) -> MessageOptions:
    """Of topic orders unless something else is given."""
    named = {"nameservers": nameservers, "topic": "orders", "timeoutMs": 10_000, **given}
    if "path" in named:
        del named["nameservers"]
    if any(name in named for name in ("subscribe", "subscribePattern", "assign")):
        del named["topic"]
    texts = {name: str(value) for name, value in named.items()}
    return parse_options(texts, is_streaming=is_streaming)


def rows_of(readings: Sequence[Any]) -> list[Row]:
    return [row for one in readings for batch in one.batches() for row in batch.to_pylist()]


def bodies(rows: Sequence[Row] | None) -> list[str]:
    return sorted(row["body"].decode() for row in rows or ())


class Engine:
    """One query; what it wrote down outlives its readers."""

    def __init__(self, nameservers: str, **given: Any) -> None:
        self._nameservers = nameservers
        self._given = given
        self.log: list[Document] = []
        self.committed = 0
        self.restart()

    def restart(self) -> None:
        """A new process with the same checkpoint."""
        options = options_of(self._nameservers, is_streaming=True, **self._given)
        self.reader = MessageStreamReader(options)

    async def step(self, limit: ReadLimit | None = None, *, dies: bool = False) -> list[Row] | None:
        """One trigger: None if there is nothing new. `dies`: after the end was written down."""
        return await asyncio.to_thread(self._step, limit, dies)

    def _step(self, limit: ReadLimit | None, dies: bool) -> list[Row] | None:
        start = self.log[self.committed - 1] if self.committed else self.reader.initialOffset()
        if len(self.log) == self.committed:
            end = self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())
            if end == start:
                return None
            self.log.append(end)
            if dies:
                return None
        rows = rows_of([one.value for one in self.reader.partitions(start, self.log[-1])])
        self.committed = len(self.log)
        self.reader.commit(self.log[-1])
        return rows
