"""A whole cleaning run in one call, for whoever has no event loop: tools and tests."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.broker.store.retention.queue_readers import QueueReaders
from aerobee.broker.store.retention.retention_ledger import RetentionLedger
from aerobee.broker.store.retention.retention_policy import PERIODIC, CleanRequest
from aerobee.broker.store.retention.retention_statistics import RemovedSegment


def clean_here(
    retention: RetentionLedger,
    readers: Sequence[QueueReaders] = (),
    request: CleanRequest = PERIODIC,
    *,
    segments_max: int = 10,
) -> list[RemovedSegment]:
    """Remove what may go now, oldest first. Blocks; no other work of the store may be running.

    Raises OSError; then the store is to be failed.
    """
    removed: list[RemovedSegment] = []
    while len(removed) < segments_max:
        segment = _clean_one(retention, readers, request)
        if segment is None:
            break
        removed.append(segment)
    return removed


def _clean_one(
    retention: RetentionLedger, readers: Sequence[QueueReaders], request: CleanRequest
) -> RemovedSegment | None:
    survey = retention.take_survey(request)
    if survey is None:
        return None
    survey.run()
    candidate = retention.finish_survey(survey)
    if candidate is None:
        return None
    search = retention.take_search(candidate, readers)
    search.run()
    removal = retention.take_removal(candidate, search)
    if removal is None:
        return None
    removal.run()
    follow = retention.finish_removal(removal)
    if follow is None:
        return None
    follow.run()
    return retention.finish_follow(follow)
