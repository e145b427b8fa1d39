"""Notes in etcd how far the logs of the connected brokers are confirmed and on their disks.

Owns: one task, apart from the heartbeats, which are not to wait for it. What is not noted in time
is noted later: an old copy of a folder is noticed by what was noted before it was put back.
"""

from __future__ import annotations

import asyncio
import logging

from aerobee.nameserver.sessions import BrokerSessions
from aerobee.runtime.errors import RegistryUnavailable
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0


class DurableKeeper:
    """See the module."""

    def __init__(self, sessions: BrokerSessions) -> None:
        self._sessions = sessions

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            try:
                await self._sessions.note_durable()
            except RegistryUnavailable as error:
                log_event(log, "ends of logs not noted", level=logging.DEBUG, reason=error)
