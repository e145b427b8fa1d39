"""The options of `aerobee.store`, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from aerobee.offset_audit.sources.option_texts import OptionTexts
from aerobee.offset_audit.sources.store.folders import Names, StoreUnreadable
from aerobee.offset_audit.sources.store.plan import PARTITION_BYTES
from aerobee.offset_audit.sources.store.record_search import RECORD_BYTES_MAX
from aerobee.store.format.delay_levels import DelayLevels

RECORDS_KIND: Final = "records"

OPTION_NAMES: Final = (
    "path",
    "paths",
    "kind",
    "columns",
    "cluster",
    "name",
    "brokerName",
    "brokerId",
    "partitionBytes",
    "recordBytesMax",
    "bodies",
    "checkBodies",
    "decompress",
    "messageDelayLevel",
    "pushFilters",
    "indexSlots",
    "sinceMs",
)
"""All that `StoreOptions.parse` understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """What the user asked for."""

    paths: tuple[str, ...]
    kind: str = RECORDS_KIND
    columns: tuple[str, ...] = ()
    """Only these; empty: the kind's defaults."""
    names: Names = field(default_factory=Names)
    partition_bytes: int = PARTITION_BYTES
    record_bytes_max: int = RECORD_BYTES_MAX
    bodies: bool = False
    check_bodies: bool = False
    decompress: bool = False
    delays_ms: tuple[int, ...] | None = None
    push_filters: bool = False
    """Whether rows that Spark's filters exclude are not even read."""
    index_slots: int | None = None
    """Hash slots of each index file; None: determined from the files."""
    journal_since_ms: int = 0
    """Of the offset journal: from this store time on."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> StoreOptions:
        """From Spark's options, which are case-insensitive. Raises InvalidArgument."""
        texts = OptionTexts(given)
        levels = texts.text("messageDelayLevel")
        broker_id = texts.number("brokerId", -1)
        return cls(
            paths=_paths(texts.text("paths"), texts.text("path")),
            kind=texts.text("kind", RECORDS_KIND),
            columns=texts.names("columns"),
            names=Names(
                texts.text("cluster") or None,
                texts.text("name") or texts.text("brokerName") or None,
                None if broker_id < 0 else broker_id,
            ),
            partition_bytes=texts.number("partitionBytes", PARTITION_BYTES, lowest=1),
            record_bytes_max=texts.number("recordBytesMax", RECORD_BYTES_MAX, lowest=91),
            bodies=texts.flag("bodies"),
            check_bodies=texts.flag("checkBodies"),
            decompress=texts.flag("decompress"),
            delays_ms=DelayLevels.parse(levels).delays_ms if levels else None,
            push_filters=texts.flag("pushFilters"),
            index_slots=texts.number("indexSlots", 0) or None,
            journal_since_ms=texts.number("sinceMs", 0),
        )


def _paths(several: str, single: str) -> tuple[str, ...]:
    """Spark passes several paths as a JSON list."""
    paths = [str(path) for path in json.loads(several)] if several else []
    if single:
        paths.append(single)
    if not paths:
        raise StoreUnreadable("no store is named; give load() the path of a store's folder")
    return tuple(paths)
