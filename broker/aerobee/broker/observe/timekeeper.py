"""What a broker does because time has passed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.sending.guard import Writability
from aerobee.runtime.beat import next_beat
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import log_event
from aerobee.store.engine.queue_reads import QueueReads

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
"""The longest interval between two checks of what is due by time. By default no shorter session is
promised; a later expiry is known one check ahead."""


class Timekeeper:
    """All purely time-driven work, in one task, so that an idle broker wakes once for all of it."""

    def __init__(
        self,
        clock: Clock,
        coordinator: GroupCoordinator,
        reads: QueueReads,
        writability: Writability,
        on_writable_changed: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._coordinator = coordinator
        self._reads = reads
        self._writability = writability
        self._on_writable_changed = on_writable_changed
        self._is_writable = not writability.no_room_reason()
        """As routes show it, or are about to."""

    async def run(self) -> None:
        """Until cancelled."""
        if not self._is_writable:
            self._log_writable(self._writability.no_room_reason())
        while True:
            now_s = self._clock.monotonic_s()
            self._coordinator.expire(now_s)
            self._reads.tidy()
            self._writability.watch.look()
            self._report_writable()
            wait_s = (self._coordinator.next_expiry_s() or now_s) - now_s
            # An expiry that is overdue but not carried out waits for this master's lease.
            time_s = asyncio.get_running_loop().time()
            look_s = next_beat(time_s, LOOK_INTERVAL_S) - time_s
            await asyncio.sleep(wait_s if 0 < wait_s < look_s else look_s)

    def _report_writable(self) -> None:
        """Let routes show at once that this broker stopped or resumed taking messages."""
        reason = self._writability.no_room_reason()
        if bool(reason) == self._is_writable:
            self._is_writable = not reason
            self._log_writable(reason)
            self._on_writable_changed()

    def _log_writable(self, reason: str) -> None:
        is_trouble = bool(reason) and not self._writability.is_stopping
        level = logging.WARNING if is_trouble else logging.INFO
        log_event(log, "writable", level=level, writable=not reason, reason=reason)
