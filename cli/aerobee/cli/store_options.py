"""Store options under the names of Apache's broker.conf, for reading a folder that exists.

Sizes that are not given are taken from the folder's own files: each file has its full length from
the moment it is made. Of an index file the length does not say how many of its bytes are slots;
that is found where its entries begin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aerobee.broker.store.config import StoreConfig, consume_queue_entries
from aerobee.broker.store.disk import Disk
from aerobee.cli.store_index_sizes import index_geometry_on_disk
from aerobee.runtime.errors import InvalidArgument
from aerobee.store_format.names import is_file_name

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY = re.compile(r"([0-9]+)([smhd])")
_FILE_BYTES_MAX = 1 << 40
_TIMER_LOG_BYTES = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How to read one folder: what our store knows of it, and the lengths of Apache's own files."""

    config: StoreConfig
    timer_log_bytes: int = _TIMER_LOG_BYTES

    def as_broker_conf(self) -> dict[str, str]:
        """The sizes under Apache's names."""
        return {
            "mappedFileSizeCommitLog": str(self.config.segment_bytes),
            "mappedFileSizeConsumeQueue": str(self.config.consume_queue_file_bytes),
            "mappedFileSizeTimerLog": str(self.timer_log_bytes),
            "maxHashSlotNum": str(self.config.index_slots_max),
            "maxIndexNum": str(self.config.index_entries_max),
        }


def store_options(disk: Disk, overrides: Mapping[str, str]) -> StoreOptions:
    """What is given, and for the rest what the files say. Raises InvalidArgument for a name or
    value."""
    given: dict[str, Any] = {}
    for name, value in overrides.items():
        reader = _OPTIONS.get(name)
        if reader is None:
            raise InvalidArgument(
                f"unknown store option {name!r:.80}; known are {', '.join(sorted(_OPTIONS))}"
            )
        given.update(reader(name, value))
    fields = {**_sizes_on_disk(disk), **given}
    if not {"index_slots_max", "index_entries_max"} <= given.keys():
        geometry = index_geometry_on_disk(disk)
        if geometry is not None:
            fields.setdefault("index_slots_max", geometry.slots)
            fields.setdefault("index_entries_max", geometry.entries)
    timer_log_bytes = fields.pop("timer_log_bytes", _TIMER_LOG_BYTES)
    return StoreOptions(StoreConfig(**fields), timer_log_bytes)


def store_config(disk: Disk, overrides: Mapping[str, str]) -> StoreConfig:
    """The configuration to open the folder with. Raises InvalidArgument for a name or value."""
    return store_options(disk, overrides).config


def _sizes_on_disk(disk: Disk) -> dict[str, int]:
    sizes: dict[str, int] = {}
    segment_bytes = _first_file_bytes(disk, "commitlog")
    if segment_bytes is not None:
        sizes["segment_bytes"] = segment_bytes
    timer_log_bytes = _first_file_bytes(disk, "timerlog")
    if timer_log_bytes is not None:
        sizes["timer_log_bytes"] = timer_log_bytes
    for topic in disk.list("consumequeue"):
        for queue in disk.list(f"consumequeue/{topic.name}"):
            file_bytes = _first_file_bytes(disk, f"consumequeue/{topic.name}/{queue.name}")
            if file_bytes is not None:
                sizes["consume_queue_entries_per_file"] = consume_queue_entries(file_bytes)
                return sizes
    return sizes


def _first_file_bytes(disk: Disk, folder: str) -> int | None:
    for entry in disk.list(folder):
        if not entry.is_directory and entry.size_bytes > 0 and is_file_name(entry.name):
            return entry.size_bytes
    return None


def _number(field: str) -> Callable[[str, str], dict[str, Any]]:
    return lambda name, value: {field: _positive(name, value)}


def _consume_queue_bytes(name: str, value: str) -> dict[str, Any]:
    return {"consume_queue_entries_per_file": consume_queue_entries(_positive(name, value))}


def _check_crc(name: str, value: str) -> dict[str, Any]:
    if value.lower() not in ("true", "false"):
        raise InvalidArgument(f"{name} must be true or false, not {value!r:.80}")
    return {"check_crc_on_recovery": value.lower() == "true"}


def _delay_levels(name: str, value: str) -> dict[str, Any]:
    levels = [_DELAY.fullmatch(level) for level in value.split(" ")]
    delays = tuple(int(level[1]) * _UNIT_MS[level[2]] for level in levels if level is not None)
    if len(delays) != len(levels):
        raise InvalidArgument(f"{name} must look like '1s 5s 10m 2h', not {value!r:.80}")
    return {"delay_levels_ms": delays}


def _positive(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and 0 < int(value[:20]) <= _FILE_BYTES_MAX):
        raise InvalidArgument(f"{name} must be a whole number above 0, not {value!r:.80}")
    return int(value)


_OPTIONS: Mapping[str, Callable[[str, str], dict[str, Any]]] = {
    "checkCRCOnRecover": _check_crc,
    "mappedFileSizeCommitLog": _number("segment_bytes"),
    "mappedFileSizeConsumeQueue": _consume_queue_bytes,
    "mappedFileSizeTimerLog": _number("timer_log_bytes"),
    "maxHashSlotNum": _number("index_slots_max"),
    "maxIndexNum": _number("index_entries_max"),
    "messageDelayLevel": _delay_levels,
}
