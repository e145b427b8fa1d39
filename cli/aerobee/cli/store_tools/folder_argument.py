"""What the store tools have in common: the folder, its sizes, the bar, and how they fail."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from aerobee.broker.store.config import StoreConfig
from aerobee.broker.store.disk import RealDisk
from aerobee.broker.store.errors import StoreUnusable
from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.store_options import store_config
from aerobee.store_format.consume_queue_entry import ENTRY_SIZE
from aerobee.store_repair.folder import measured_sizes

Command = TypeVar("Command", bound=Callable[..., Any])

OnProgress = Callable[[int, int], None]


def folder_options(command: Command) -> Command:
    """Adds FOLDER (parameter `folder`) and --config (`config`)."""
    command = click.option(
        "--config",
        "config",
        multiple=True,
        metavar="NAME=VALUE",
        help="A store option under Apache's name, for example mappedFileSizeCommitLog=262144. "
        "Sizes that are not given are taken from the files.",
    )(command)
    return click.argument("folder", type=click.Path(path_type=Path))(command)


def open_folder(folder: Path, config: tuple[str, ...]) -> tuple[RealDisk, StoreConfig]:
    """The folder and the sizes of its files. Raises EnvironmentFailure if it is no folder or no
    store, InvalidArgument for an option."""
    if not folder.is_dir():
        raise EnvironmentFailure(f"{folder} is not a folder; name the store's root folder")
    disk = RealDisk(folder)
    if not any(disk.exists(name) for name in ("commitlog", "consumequeue", "config")):
        raise EnvironmentFailure(
            f"{folder} is no store: it has neither commitlog, consumequeue nor config in it"
        )
    sizes = measured_sizes(disk)
    given: dict[str, str] = {}
    if "segment_bytes" in sizes:
        given["mappedFileSizeCommitLog"] = str(sizes["segment_bytes"])
    if "consume_queue_entries_per_file" in sizes:
        file_bytes = sizes["consume_queue_entries_per_file"] * ENTRY_SIZE
        given["mappedFileSizeConsumeQueue"] = str(file_bytes)
    return disk, store_config(disk, {**given, **_overrides(config)})


def _overrides(config: tuple[str, ...]) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for option in config:
        name, separator, value = option.partition("=")
        if not separator:
            raise click.BadParameter(f"{option!r} is not NAME=VALUE", param_hint="--config")
        overrides[name.strip()] = value.strip()
    return overrides


@contextlib.contextmanager
def store_failures(folder: Path) -> Iterator[None]:
    """Turns what a store raises into one sentence and an exit code."""
    try:
        yield
    except StoreUnusable as error:
        raise EnvironmentFailure(str(error)) from error
    except OSError as error:
        raise EnvironmentFailure(f"cannot use the store {folder}: {error}") from error


@contextlib.contextmanager
def progress_bar(text: str) -> Iterator[OnProgress | None]:
    """A bar on a terminal's standard error, else nothing."""
    if not sys.stderr.isatty():
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
