"""What a test shows when the cluster of a fixture fails: what failed, why, and the end of the log.

The frames in between are the plugin's, the cluster's thread's and the broker's: forty, in which
a user finds nothing to change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aerobee.testing.process_node import end_of

LOG = "cluster.log"
"""Of all parts of the cluster, and of clients, that run in this process. Brokers that are processes
have one each beside it."""


@contextmanager
def logged_to(folder: Path) -> Iterator[None]:
    """Warnings of Aerobee are kept in the folder, too; more, if logging is set so."""
    handler = logging.FileHandler(folder / LOG, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("aerobee")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


@contextmanager
def short_failure(what: str, folder: Path | None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        told = "\n".join([what, *_reasons(error)])
        if folder is not None:
            told = "\n".join([told, *_ends(folder, told)])
        raise pytest.fail.Exception(told, pytrace=False) from None


def _reasons(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _reasons(each)
    else:
        yield f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _ends(folder: Path, told: str) -> Iterator[str]:
    """The last lines of each log, below its name; not of one that is told already."""
    for log in sorted(folder.glob("*.log")):
        if str(log) not in told and (lines := end_of(log)):
            yield f"the end of {log}:"
            yield from lines
    yield "--aerobee-keep keeps the cluster's folder, and --full-trace shows all frames"
