"""Removes what the log no longer needs: over time, and on an operator's request.

Owns: the order of one run. The store says what may go by age and disk space, the holds say what is
still needed, and the upkeep thread removes, one segment at a time with a pause between two. Runs
never overlap. Unread messages that groups lose are logged when it happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from aerobee.broker.retention.holds import Hold, Need, Upkeep
from aerobee.runtime.errors import ShuttingDown
from aerobee.runtime.log import log_event
from aerobee.runtime.waiting import Turns
from aerobee.store.engine.errors import FileTrouble
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.retention.retention_ledger import Candidate, RetentionLedger
from aerobee.store.engine.retention.retention_policy import PERIODIC, CleanRequest
from aerobee.store.engine.retention.retention_statistics import (
    RemovedSegment,
    UnreadRemoval,
    largest_removals,
)
from aerobee.store.engine.retention.retention_works import RemovalWork
from aerobee.store.flush.work_thread import Work

log = logging.getLogger(__name__)

COMMAND_ROUNDS = 20
"""A command may remove this many times as much as one timed run."""
_LOSSES_LOGGED_MAX = 20
_ROUNDS_MAX = 3


@dataclass(slots=True)
class CleanReport:
    """What one run did. `kept_because`: why expired segments, or files that belong to removed ones,
    are still there; empty if none are."""

    removed: list[RemovedSegment] = field(default_factory=list)
    kept_because: str = ""

    @property
    def removed_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.removed)

    @property
    def unread(self) -> tuple[UnreadRemoval, ...]:
        """What groups lost, each group and queue once, the largest losses first, limited to what
        fits into an answer."""
        losses: dict[tuple[str, str, int], int] = {}
        for each in (loss for segment in self.removed for loss in segment.unread):
            key = each.group, each.topic, each.queue_id
            losses[key] = losses.get(key, 0) + each.messages
        return largest_removals(UnreadRemoval(*key, messages) for key, messages in losses.items())


class Cleaning:
    """On the loop."""

    def __init__(
        self,
        retention: RetentionLedger,
        holds: Sequence[Hold],
        config: RetentionConfig,
        upkeep: Upkeep,
    ) -> None:
        """The holds are asked in this order; the first one that needs a segment is reported.
        `upkeep` runs a work on the thread that writes the store's derived files."""
        self._retention = retention
        self._holds = holds
        self._config = config
        self._upkeep = upkeep
        self._running = Turns()
        self._kept_because = ""
        self._causes_told: set[tuple[str, int | None]] = set()

    async def run(self) -> None:
        """Clean repeatedly, until cancelled.

        Raises:
            StoreFailed: the disk failed.
        """
        if not self._config.enabled:
            return
        await asyncio.sleep(self._config.first_clean_ms / 1_000)
        while True:
            try:
                await self.clean(PERIODIC)
            except ShuttingDown:
                return
            await asyncio.sleep(self._config.clean_interval_ms / 1_000)

    async def clean(self, request: CleanRequest) -> CleanReport:
        """One run: removes segments up to the first that must stay.

        Raises:
            ShuttingDown: the broker is stopping.
            StoreFailed: the disk failed.
        """
        report = CleanReport()
        segments_max = self._config.delete_files_max
        if request.commanded:
            segments_max *= COMMAND_ROUNDS
        async with self._running:
            while (removed := await self._clean_one(request)) is not None:
                report.removed.append(removed)
                if len(report.removed) == segments_max:
                    break
                await asyncio.sleep(self._config.delete_pause_ms / 1_000)
            troubles = self._retention.take_troubles()
            report.kept_because = self._retention.kept_because
            self._tell_what_stays(report.kept_because)
            self._tell_troubles(troubles)
            if troubles and not report.kept_because:
                report.kept_because = str(troubles[0])
        return report

    async def _clean_one(self, request: CleanRequest) -> RemovedSegment | None:
        """Removes the oldest segment, if it may go."""
        retention = self._retention
        survey = retention.take_survey(request)
        if survey is None:
            return None
        await self._do(survey)
        candidate = retention.finish_survey(survey)
        if candidate is None:
            return None
        for _ in range(_ROUNDS_MAX):
            need = await self._ask(candidate)
            if need is not None:
                retention.keep(need.reason)
                return None
            # Nothing is awaited from here to the removal, so the holds' answers are still valid.
            changed = next((why for hold in self._holds if (why := hold.changed())), "")
            if not changed:
                losing = [readers for hold in self._holds for readers in hold.losing()]
                return await self._remove(retention.take_removal(candidate, losing))
        retention.keep(changed)
        return None

    async def _ask(self, candidate: Candidate) -> Need | None:
        """What keeps the candidate: the answer of the first hold that needs any of it."""
        for hold in self._holds:
            need = await hold.need(candidate, self._do)
            if need is None or need.position >= candidate.end:
                continue
            if not (need.is_unread and candidate.request.unread):
                return need
        return None

    async def _remove(self, removal: RemovalWork) -> RemovedSegment | None:
        """The log already begins later: the rest is done even under cancellation."""
        cancelled = await self._do_whole(removal)
        removed = None
        if (follow := self._retention.finish_removal(removal)) is not None:
            cancelled = await self._do_whole(follow) or cancelled
            removed = self._retention.finish_follow(follow)
            _tell(removed)
        if cancelled is not None:
            raise cancelled
        return removed

    async def _do_whole(self, work: Work) -> asyncio.CancelledError | None:
        """Returns once it has run, with any cancellation that came meanwhile."""
        try:
            await self._do(work)
        except asyncio.CancelledError as cancelled:
            return cancelled
        return None

    async def _do(self, work: Work) -> None:
        await self._upkeep(work)

    def _tell_troubles(self, troubles: list[FileTrouble]) -> None:
        """Log each cause once, not in every run."""
        for trouble in troubles:
            if trouble.cause not in self._causes_told:
                self._causes_told.add(trouble.cause)
                log_event(
                    log,
                    "retention skips a file that it cannot handle, and all others like it",
                    level=logging.WARNING,
                    reason=trouble,
                )

    def _tell_what_stays(self, kept_because: str) -> None:
        if kept_because and kept_because != self._kept_because:
            log_event(log, "expired log segments stay", reason=kept_because)
        self._kept_because = kept_because


def _tell(removed: RemovedSegment) -> None:
    log_event(
        log,
        "log segment removed",
        segment=removed.name,
        because=removed.cause,
        written_ms=removed.modified_ms,
    )
    tell_unread(removed.unread)


def tell_unread(losses: Collection[UnreadRemoval]) -> None:
    """Log what groups lost, if they lost anything."""
    if losses:
        listed = ", ".join(
            f"{each.group} {each.topic}/{each.queue_id}: {each.messages}"
            for each in largest_removals(losses, _LOSSES_LOGGED_MAX)
        )
        log_event(
            log,
            "messages removed unread",
            level=logging.WARNING,
            messages=sum(each.messages for each in losses),
            queues=len(losses),
            most=listed,
        )
