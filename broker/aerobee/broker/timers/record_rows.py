"""PURE: rows of the index from records of the timer queue.

A recall request, which Apache's brokers store beside the messages, is also a row: due before
everything else, so that it is carried out before the message it names could be delivered, and only
once.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from aerobee.broker.timers.pending import Rows, make_rows
from aerobee.store.format.delayed_records import NotDelayed, timer_facts
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.record_layout import RecordCorrupt
from aerobee.store.format.record_view import Record

REQUEST_DUE_MS: Final = 0
"""The due time of requests."""


class RowsFound(NamedTuple):
    """`refused`: queue offsets of records that are not messages, and why."""

    rows: Rows
    refused: list[tuple[int, str]]


def key_hash(topic: str, unique_key: str) -> int:
    """Hash of what a message is found by: files contain it."""
    digest = blake2b(f"{topic}+{unique_key}".encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)


def rows_of(records: Iterable[Record]) -> RowsFound:
    """Rows in the order of the records, which is queue order."""
    columns: list[tuple[int, int, int, int, int, int]] = []
    refused: list[tuple[int, str]] = []
    hashes: dict[str, int] = {}
    for record in records:
        try:
            due_ms, recalled, topic, unique_key = timer_facts(record)
        except (NotDelayed, RecordCorrupt) as error:
            refused.append((record.queue_offset, str(error)))
            continue
        topic_hash = hashes.get(topic)
        if topic_hash is None:
            topic_hash = hashes[topic] = java_string_hash(topic)
        columns.append(
            (
                due_ms if recalled is None else REQUEST_DUE_MS,
                *record.place,
                topic_hash,
                key_hash(topic, unique_key) if unique_key else 0,
            )
        )
    if not columns:
        return RowsFound(make_rows([], [], [], []), refused)
    due, offsets, positions, sizes, topic_hashes, key_hashes = zip(*columns, strict=True)
    rows = make_rows(
        due, offsets, positions, sizes, topic_hashes=topic_hashes, key_hashes=key_hashes
    )
    return RowsFound(rows, refused)
