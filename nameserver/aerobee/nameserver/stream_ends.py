"""Notes in etcd that the stream of a registered broker has ended.

A registration outlives its process by up to a lease. While some nameserver still hears the process,
nobody takes its place, whatever a newcomer says; once its stream has ended, a start in the same
folder need not wait for the lease. Each nameserver knows its own streams only, so the end of one is
noted at the registration, where all of them look.

Owns: one task, and the ends that are not noted yet; bounded by the brokers that were connected.
"""

from __future__ import annotations

import asyncio
import logging

from aerobee.nameserver.notifier import Notifier
from aerobee.nameserver.registry import Registry
from aerobee.nameserver.stored import BrokerKey, BrokerRecord
from aerobee.runtime.errors import RegistryUnavailable
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


class StreamEnds:
    """See the module."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiting: dict[BrokerKey, BrokerRecord] = {}
        self._wake = asyncio.Event()
        self._noted = Notifier()

    def ended(self, registered: BrokerRecord) -> None:
        """The stream of the process that this registration was written for has ended."""
        self._waiting[registered.key] = registered
        self._wake.set()

    async def settled(self, key: BrokerKey, timeout_s: float) -> None:
        """Returns once nothing about this broker is still to be noted, or after `timeout_s`."""
        await self._noted.wait_until(lambda: key not in self._waiting, timeout_s)

    async def run(self) -> None:
        """Until cancelled. What cannot be noted is left to the lease."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for registered in list(self._waiting.values()):
                try:
                    await self._registry.note_disconnected(registered)
                except RegistryUnavailable as error:
                    log_event(log, "end of a stream not noted", level=logging.DEBUG, reason=error)
                if self._waiting.get(registered.key) is registered:
                    del self._waiting[registered.key]
            self._noted.notify()
