"""Stores whose segments can be aged, and the steps of a removal one by one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aerobee.broker.retention.holds import need_of_group
from aerobee.runtime.clock import Clock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.retention.retention_ledger import RetentionLedger
from aerobee.store.engine.retention.retention_policy import PERIODIC, CleanRequest
from aerobee.store.engine.retention.retention_statistics import RemovedSegment
from aerobee.store.engine.retention.retention_works import RemovalWork
from aerobee.store.engine.retention.unread_search import QueueReaders
from tests.support.fault_disk import FaultDisk
from tests.support.stores import SMALL, append, flush, open_store

RETAINED = replace(SMALL, retention=RetentionConfig())
COMMAND = CleanRequest(commanded=True)
COMMAND_UNREAD = CleanRequest(commanded=True, unread=True)
RESERVED_MS = 72 * 3_600_000
BODY = b"x" * 600


def roomy_disk(root: Path) -> FaultDisk:
    """Half full, whatever this machine's disk is."""
    disk = FaultDisk(root)
    disk.free, disk.total = 50, 100
    return disk


def open_retained(root: Path, clock: Clock, config: StoreConfig = RETAINED) -> MessageStore:
    """With retention, on a disk with room."""
    return open_store(roomy_disk(root), config, clock)


def fill(store: MessageStore, messages: int, *, topic: str = "Orders", queues: int = 2) -> None:
    """Messages of about 700 bytes, to each queue in turn; about five fill a small segment."""
    for number in range(messages):
        append(store, topic, number % queues, b"%08d" % number + BODY)


def settle(store: MessageStore, clock: Clock) -> None:
    """Write everything to its files, as the flush thread does within seconds."""
    assert hasattr(clock, "advance_ms")
    clock.advance_ms(StoreConfig().checkpoint_interval_ms)
    flush(store)


def write_times(root: Path, modified_ms: int) -> None:
    """Make every segment look as if it was last written at that time."""
    for path in (root / "commitlog").iterdir():
        os.utime(path, (modified_ms / 1_000, modified_ms / 1_000))


def expire(root: Path, clock: Clock) -> None:
    """Make every segment old enough to expire."""
    write_times(root, clock.now_ms() - RESERVED_MS - 1_000)


def take_removal(
    store: MessageStore, readers: Sequence[QueueReaders] = (), request: CleanRequest = COMMAND
) -> RemovalWork | None:
    """All steps up to the removal itself; None if the oldest segment stays."""
    return _take_removal(store.retention, readers, request)


def _take_removal(
    retention: RetentionLedger, readers: Sequence[QueueReaders], request: CleanRequest
) -> RemovalWork | None:
    survey = retention.take_survey(request)
    if survey is None:
        return None
    survey.run()
    candidate = retention.finish_survey(survey)
    if candidate is None:
        return None
    search = retention.take_search(candidate, readers)
    search.run()
    holding = retention.finish_search(search)
    if holding is not None and not request.unread:
        retention.keep(need_of_group(holding).reason)
        return None
    return retention.take_removal(candidate, search.unread)


def finish(store: MessageStore, removal: RemovalWork) -> RemovedSegment | None:
    """The remaining steps of a removal that has run."""
    return _finish(store.retention, removal)


def _finish(retention: RetentionLedger, removal: RemovalWork) -> RemovedSegment | None:
    follow = retention.finish_removal(removal)
    if follow is None:
        return None
    follow.run()
    return retention.finish_follow(follow)


def clean_here(
    retention: RetentionLedger,
    readers: Sequence[QueueReaders] = (),
    request: CleanRequest = PERIODIC,
    *,
    segments_max: int = 10,
) -> list[RemovedSegment]:
    """Remove what may go now, oldest first. Blocks; no other work of the store may be running.

    Raises OSError; the caller must then fail the store.
    """
    removed: list[RemovedSegment] = []
    while len(removed) < segments_max:
        removal = _take_removal(retention, readers, request)
        if removal is None:
            break
        removal.run()
        segment = _finish(retention, removal)
        if segment is None:
            break
        removed.append(segment)
    return removed
