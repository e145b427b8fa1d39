"""A store of any size, written as fast as the disk allows: log, queue files and tables.

All records are equally long, so the position of the n-th record and its queue can be computed;
blocks of them are made as arrays. Runs of neighbours share a queue, as batches do.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, pack_entries
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.names import file_name
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, blank_record, encode_record
from aerobee.store.format.record_layout import (
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
)

START_MS: Final = 1_700_000_000_000
TAG: Final = "tag-A"
_RUN: Final = 32
_BLOCK_BYTES: Final = 8 * 1024 * 1024
_HOST: Final = HostAddress.parse("127.0.0.1:10911")
_KEY_DIGITS: Final = 32

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GeneratedStore:
    """The content of the store."""

    root: Path
    records: int
    body_bytes: int = 1024
    topics: int = 10
    queues_each: int = 8
    segment_bytes: int = 1 << 30
    queue_file_entries: int = 300_000
    messages_per_ms: float = 100
    """How many messages are stored per millisecond."""

    @property
    def queues(self) -> int:
        return self.topics * self.queues_each

    def write(self) -> None:
        """Write the whole store, as a broker leaves it when it stops."""
        self.write_log()
        self.write_queues()
        self.write_tables()

    # --------------------------------------------------------------------------------- the log

    def template(self) -> bytes:
        """A record without its place; all others differ from it in a few fields."""
        properties = {"UNIQ_KEY": "0" * _KEY_DIGITS, "TAGS": TAG}
        return encode_record(
            topic=self.topic(0).encode(),
            body=bytes(range(256)) * (self.body_bytes // 256) + bytes(self.body_bytes % 256),
            properties=encode_properties(properties),
            born_timestamp_ms=START_MS,
            born_host=_HOST,
        )

    @property
    def record_bytes(self) -> int:
        return len(self.template())

    @property
    def per_segment(self) -> int:
        return (self.segment_bytes - 8) // self.record_bytes

    def topic(self, number: int) -> str:
        return f"topic-{number:05d}"

    def positions(self, numbers: Int64Array) -> Int64Array:
        """Positions of records in the log."""
        segments, places = np.divmod(numbers, self.per_segment)
        found: Int64Array = segments * self.segment_bytes + places * self.record_bytes
        return found

    def stored_ms(self, numbers: Int64Array) -> Int64Array:
        """When records were stored."""
        return START_MS + np.floor_divide(numbers, self.messages_per_ms).astype(np.int64)

    def write_log(self) -> None:
        folder = self.root / "commitlog"
        folder.mkdir(parents=True, exist_ok=True)
        template = self.template()
        for first in range(0, self.records, self.per_segment):
            end = min(self.records, first + self.per_segment)
            base = first // self.per_segment * self.segment_bytes
            with (folder / file_name(base)).open("wb") as file:
                file.truncate(self.segment_bytes)
                for rows in self._blocks(template, first, end):
                    file.write(rows.data)
                if end - first == self.per_segment:
                    file.write(blank_record(self.segment_bytes - file.tell()))

    def _blocks(self, template: bytes, first: int, end: int) -> Iterator[npt.NDArray[np.uint8]]:
        size = len(template)
        step = max(1, _BLOCK_BYTES // size)
        rows = np.tile(np.frombuffer(template, np.uint8), (step, 1))
        topic_at = template.index(self.topic(0).encode()) + len("topic-")
        key_at = template.index(b"0" * _KEY_DIGITS, topic_at)
        for begin in range(first, end, step):
            numbers = np.arange(begin, min(end, begin + step))
            part = rows[: len(numbers)]
            queues, offsets = self._places(numbers)
            topics, queue_ids = np.divmod(queues, self.queues_each)
            _put(part, QUEUE_ID_AT, queue_ids, ">i4")
            _put(part, QUEUE_OFFSET_AT, offsets, ">i8")
            _put(part, PHYSICAL_OFFSET_AT, self.positions(numbers), ">i8")
            _put(part, STORE_TIMESTAMP_AT, self.stored_ms(numbers), ">i8")
            _put_digits(part, topic_at, topics, 5)
            _put_digits(part, key_at + _KEY_DIGITS - 18, numbers, 18)
            yield part

    def _places(self, numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The queue, numbered across all topics, and the offset in it."""
        runs, in_run = np.divmod(numbers, _RUN)
        rounds, queues = np.divmod(runs, self.queues)
        return queues, rounds * _RUN + in_run

    # ------------------------------------------------------------------------------ the queues

    def write_queues(self) -> None:
        tags_code = java_string_hash(TAG)
        size = self.record_bytes
        file_bytes = self.queue_file_entries * ENTRY_SIZE
        for queue in range(self.queues):
            topic, queue_id = divmod(queue, self.queues_each)
            folder = self.root / "consumequeue" / self.topic(topic) / str(queue_id)
            folder.mkdir(parents=True, exist_ok=True)
            for first in range(0, self.records, self.queue_file_entries):
                positions = self.positions(self._numbers(queue, first))
                if not len(positions):
                    break
                with (folder / file_name(first * ENTRY_SIZE)).open("wb") as file:
                    file.write(
                        pack_entries(
                            positions,
                            np.full(len(positions), size),
                            np.full(len(positions), tags_code),
                        )
                    )
                    file.truncate(file_bytes)

    def _numbers(self, queue: int, first: int) -> Int64Array:
        """The records of a queue, starting at an offset, as many as fit a file."""
        offsets = np.arange(first, first + self.queue_file_entries)
        rounds, in_run = np.divmod(offsets, _RUN)
        numbers = (rounds * self.queues + queue) * _RUN + in_run
        return numbers[numbers < self.records]

    # ------------------------------------------------------------------------------ the tables

    def write_tables(self) -> None:
        (self.root / "config").mkdir(parents=True, exist_ok=True)
        bean = {"readQueueNums": self.queues_each, "writeQueueNums": self.queues_each, "perm": 6}
        topics = {self.topic(number): bean for number in range(self.topics)}
        document = {"dataVersion": {"counter": 1}, "topicConfigTable": topics}
        (self.root / "config" / "topics.json").write_text(json.dumps(document))
        last_ms = int(self.stored_ms(np.array([self.records - 1]))[0])
        checkpoint = Checkpoint(last_ms, last_ms, 0, 0, 0)
        (self.root / "checkpoint").write_bytes(checkpoint.encode())


def _put(rows: npt.NDArray[np.uint8], at: int, values: Int64Array, kind: str) -> None:
    encoded = values.astype(kind)
    width = encoded.itemsize
    rows[:, at : at + width] = encoded.view(np.uint8).reshape(len(values), width)


def _put_digits(rows: npt.NDArray[np.uint8], at: int, values: Int64Array, width: int) -> None:
    left = values.copy()
    for place in reversed(range(width)):
        left, digits = np.divmod(left, 10)
        rows[:, at + place] = digits + ord("0")


if __name__ == "__main__":
    # python -m aerobee.bench.audit.generated_store ROOT RECORDS BODY_BYTES
    GeneratedStore(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])).write()
    os.sync()
