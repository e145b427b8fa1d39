"""The options of `aerobee.store`, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

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
    others: Mapping[str, str] = field(default_factory=dict)
    """Options of single kinds, by their name in lower case."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> StoreOptions:
        """From Spark's options, which are case-insensitive. Raises StoreUnreadable."""
        options = {name.lower(): value for name, value in given.items()}
        take = _Taker(options)
        levels = take.text("messageDelayLevel")
        return cls(
            paths=_paths(take.text("paths"), take.text("path")),
            kind=take.text("kind") or RECORDS_KIND,
            columns=tuple(name.strip() for name in take.text("columns").split(",") if name.strip()),
            names=Names(
                take.optional("cluster"),
                take.optional("name") or take.optional("brokerName"),
                take.number("brokerId", 0) if "brokerid" in options else None,
            ),
            partition_bytes=take.number("partitionBytes", PARTITION_BYTES, at_least=1),
            record_bytes_max=take.number("recordBytesMax", RECORD_BYTES_MAX, at_least=91),
            bodies=take.flag("bodies"),
            check_bodies=take.flag("checkBodies"),
            decompress=take.flag("decompress"),
            delays_ms=DelayLevels.parse(levels).delays_ms if levels else None,
            push_filters=take.flag("pushFilters"),
            index_slots=take.number("indexSlots", 0, at_least=0) or None,
            journal_since_ms=take.number("sinceMs", 0),
            others=take.left,
        )


def _paths(several: str, single: str) -> tuple[str, ...]:
    """Spark passes several paths as a JSON list."""
    paths = [str(path) for path in json.loads(several)] if several else []
    if single:
        paths.append(single)
    if not paths:
        raise StoreUnreadable("no store is named; give load() the path of a store's folder")
    return tuple(paths)


class _Taker:
    """Takes options out of those given; `left` is the rest."""

    def __init__(self, options: dict[str, str]) -> None:
        self.left = options

    def optional(self, name: str) -> str | None:
        assert name in OPTION_NAMES, name
        return self.left.pop(name.lower(), None)

    def text(self, name: str) -> str:
        return self.optional(name) or ""

    def number(self, name: str, default: int, *, at_least: int = 0) -> int:
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdecimal()) or int(text) < at_least:
            raise StoreUnreadable(f"option {name}={text!r} is not a number of at least {at_least}")
        return int(text)

    def flag(self, name: str) -> bool:
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise StoreUnreadable(f"option {name}={text!r} is neither true nor false")
        return text == "true"
