"""Single rows of blocks in which a log and its queues or indexes differ, read in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.local_frame import LocalFrame
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts
from aerobee.offset_audit.sources.store.ranges_rows_of_blocks import (
    UNIT_BYTES,
    Block,
    entry_rows,
    index_files_of,
    index_key_rows,
    log_key_rows,
    log_rows,
    unit_span,
)
from aerobee.offset_audit.tables import KEY_ROWS, QUEUE_ROWS, Drill

_Facts = Mapping[str, StoreFacts]


def queue_drill(facts: _Facts) -> Drill:
    """QUEUE_ROWS of blocks with `store`, `topic`, `queue_id`, `block`, `first_position` and
    `last_position`."""
    spans = {root: unit_span(one.store) for root, one in facts.items()}

    def drill(blocks: Frame) -> Frame:
        rows: list[dict[str, Any]] = []
        units: dict[tuple[str, int], set[Block]] = {}
        for one in blocks.collect():
            block = Block(one["topic"], one["queue_id"], one["block"])
            rows += _rows(entry_rows(facts[one["store"]], block))
            if one["first_position"] is None or one["last_position"] is None:
                continue
            first, last = spans[one["store"]]
            begin = min(max(one["first_position"] // UNIT_BYTES, first), last)
            end = min(max(one["last_position"] // UNIT_BYTES, first), last)
            for unit in range(begin, end + 1):
                units.setdefault((one["store"], unit), set()).add(block)
        for (store, unit), wanted in units.items():
            rows += _rows(log_rows(facts[store], unit, wanted))
        return LocalFrame(names_of(QUEUE_ROWS), rows)

    return drill


def key_drill(facts: _Facts) -> Drill:
    """KEY_ROWS of blocks with `store` and `block`."""

    def drill(blocks: Frame) -> Frame:
        wanted: dict[str, list[int]] = {}
        for one in blocks.collect():
            wanted.setdefault(one["store"], []).append(one["block"])
        rows: list[dict[str, Any]] = []
        of_index: list[dict[str, Any]] = []
        for store, numbers in wanted.items():
            for number in numbers:
                rows += _rows(log_key_rows(facts[store], number))
            files: dict[int, list[int]] = {}
            for file, block in index_files_of(facts[store], numbers):
                files.setdefault(file, []).append(block)
            for file, each in files.items():
                of_index += _rows(index_key_rows(facts[store], file, each))
        names = names_of(KEY_ROWS)
        # A key that a broker filed twice, in two files, is one key.
        index = LocalFrame(names, of_index).dropDuplicates(["store", "position", "key_hash"])
        return LocalFrame(names, rows).unionByName(index)

    return drill


def _rows(batches: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]
