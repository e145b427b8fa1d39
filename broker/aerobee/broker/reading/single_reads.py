"""A single answer to a reader's question, which may wait for a message.

Owns: the wait, which ends when this replica's role does: checks made under one role do not apply to
the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from aerobee.broker.reading.egress import ColdRead, Egress, Fetched, ReadCode
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import NotMaster
from aerobee.store.engine.queue_reads import QueueRead


class SingleReads:
    """On the loop."""

    def __init__(self, egress: Egress, clock: Clock) -> None:
        self._egress = egress
        self._clock = clock

    async def read(
        self,
        wanted: QueueRead,
        wait_s: float,
        *,
        check: Callable[[], None] = lambda: None,
    ) -> Fetched:
        """What is there now, or comes within `wait_s`. `check` is called before each look.

        Raises:
            AerobeeError: as `Egress.read` and `Egress.load`; NotMaster when the role has changed;
            what `check` raises.
        """
        at_slave = self._egress.is_slave
        deadline_s = self._clock.monotonic_s() + wait_s
        while True:
            check_role(self._egress, at_slave=at_slave)
            check()
            found = self._egress.read(wanted)
            if isinstance(found, ColdRead):
                found = await self._egress.load(found)
            is_empty = found.count == 0 and found.code is ReadCode.OK
            if found.code is not ReadCode.NO_NEW_MESSAGE and not is_empty:
                return found
            if is_empty:
                # A whole scan without a match: let others run, then continue after it.
                wanted = replace(wanted, offset=found.next_offset, is_scan=True)
                await asyncio.sleep(0)
                if self._clock.monotonic_s() < deadline_s:
                    continue
            wanted = replace(wanted, is_scan=False)
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0 or not await self._grown(wanted, left_s):
                return found

    async def _grown(self, wanted: QueueRead, timeout_s: float) -> bool:
        """Wait until the queue grows; False if it did not grow in time."""
        grown = asyncio.Event()
        self._egress.wait(wanted.topic, wanted.queue_id, grown.set)
        try:
            async with asyncio.timeout(timeout_s):
                await grown.wait()
        except TimeoutError:
            return False
        finally:
            self._egress.forget(wanted.topic, wanted.queue_id, grown.set)
        return True


def check_role(egress: Egress, *, at_slave: bool) -> None:
    """Raises NotMaster if this replica's role has changed since the pull began: a slave requires no
    lease, a master the current one."""
    if egress.is_slave != at_slave:
        raise NotMaster(
            "this replica has another role in its group now; ask the route again and pull "
            "from there"
        )
