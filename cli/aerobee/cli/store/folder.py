"""A store folder as an argument: its path, the sizes of its files, the bar, and how it fails.

Options have the names of Apache's broker.conf. Sizes that are not given are taken from the folder's
own files: each file has its full length from the moment it is made. The length of an index file
does not say how many of its bytes are slots; that is found where its entries begin.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.options import settings_option
from aerobee.cli.output import is_quiet
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.config import StoreConfig, consume_queue_entries
from aerobee.store.engine.disk import Disk, RealDisk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.format.delay_levels import DelayLevels, DelayLevelsIllegal
from aerobee.store.format.index_file import IndexGeometry
from aerobee.store.format.index_geometry import geometry_of
from aerobee.store.format.names import is_file_name
from aerobee.store.repair.folder import measured_sizes

Command = TypeVar("Command", bound=Callable[..., Any])

OnProgress = Callable[[int, int], None]
"""Told the bytes done and the bytes in all."""

INDEX_DIRECTORY = "index"
TIMER_LOG_DIRECTORY = "timerlog"

_FILE_BYTES_MAX = 1 << 40
_TIMER_LOG_BYTES = 100 * 1024 * 1024


def folder_options(command: Command) -> Command:
    """Adds FOLDER (parameter `folder`) and --config (`config`)."""
    config = settings_option(
        "--config",
        metavar="NAME=VALUE",
        help="A store option under Apache's name, for example mappedFileSizeCommitLog=262144; "
        "repeatable. Sizes that are not given are taken from the files.",
    )
    return click.argument("folder", type=click.Path(path_type=Path))(config(command))


@contextlib.contextmanager
def store_failures(folder: Path) -> Iterator[None]:
    """Turns what a store raises into one sentence and an exit code."""
    try:
        yield
    except StoreUnusable as error:
        raise EnvironmentFailure(str(error)) from error
    except BrokenPipeError:
        raise  # Who reads our output has enough of it.
    except OSError as error:
        raise EnvironmentFailure(f"cannot use the store {folder}: {error}") from error


@contextlib.contextmanager
def progress_bar(text: str) -> Iterator[OnProgress | None]:
    """A bar on a terminal's standard error, else nothing."""
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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


def open_folder(folder: Path, overrides: Mapping[str, str]) -> tuple[RealDisk, StoreOptions]:
    """The folder and how to read it.

    Raises:
        StoreUnusable: it is no folder, or no store.
        InvalidArgument: an option's name or value.
    """
    if not folder.is_dir():
        raise StoreUnusable(f"{folder} is not a folder; name the store's root folder")
    disk = RealDisk(folder)
    if not any(disk.exists(name) for name in ("commitlog", "consumequeue", "config")):
        raise StoreUnusable(
            f"{folder} is not a store: it has no commitlog, consumequeue or config in it"
        )
    return disk, store_options(disk, overrides)


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
    fields: dict[str, Any] = {
        "timer_log_bytes": _timer_log_bytes(disk),
        **measured_sizes(disk),
        **given,
    }
    if not {"index_slots_max", "index_entries_max"} <= given.keys():
        geometry = index_geometry_on_disk(disk)
        if geometry is not None:
            fields.setdefault("index_slots_max", geometry.slots)
            fields.setdefault("index_entries_max", geometry.entries)
    timer_log_bytes = fields.pop("timer_log_bytes")
    return StoreOptions(StoreConfig(**fields), timer_log_bytes)


def index_geometry_on_disk(disk: Disk) -> IndexGeometry | None:
    """Slots and entries as the first index file in use has them; None without one."""
    for entry in disk.list(INDEX_DIRECTORY):
        if entry.is_directory:
            continue
        file = disk.open_file(f"{INDEX_DIRECTORY}/{entry.name}", read_only=True)
        geometry = geometry_of(
            lambda begin, end, file=file: file.read_at(begin, end - begin),  # type: ignore[misc]
            entry.size_bytes,
        )
        if geometry is not None:
            return geometry
    return None


def _timer_log_bytes(disk: Disk) -> int:
    for entry in disk.list(TIMER_LOG_DIRECTORY):
        if not entry.is_directory and entry.size_bytes > 0 and is_file_name(entry.name):
            return entry.size_bytes
    return _TIMER_LOG_BYTES


def _number(field: str) -> Callable[[str, str], dict[str, Any]]:
    return lambda name, value: {field: _positive(name, value)}


def _consume_queue_bytes(name: str, value: str) -> dict[str, Any]:
    return {"consume_queue_entries_per_file": consume_queue_entries(_positive(name, value))}


def _check_crc(name: str, value: str) -> dict[str, Any]:
    if value.lower() not in ("true", "false"):
        raise InvalidArgument(f"{name} must be true or false, not {value!r:.80}")
    return {"check_crc_on_recovery": value.lower() == "true"}


def _delay_levels(name: str, value: str) -> dict[str, Any]:
    try:
        return {"delay_levels_ms": DelayLevels.parse(value).delays_ms}
    except DelayLevelsIllegal as error:
        raise InvalidArgument(f"{name}: {error}") from error


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
