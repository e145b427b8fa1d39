"""The brokers connected to this nameserver, and what their sessions share.

Owns: the session of each connected broker (a broker_session.py object), and two tasks that run
beside the heartbeats and delay none. One records in etcd how far logs are confirmed and on disk.
The other records that a stream has ended. A registration outlives its process by up to a lease, and
while some nameserver still hears the process nobody takes its place, whatever a newcomer says; once
its stream has ended, a start in the same folder need not wait for the lease. Each nameserver knows
only its own streams, so the end of one is recorded in the registration, where all nameservers see
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from aerobee.domain import names
from aerobee.nameserver import convert
from aerobee.nameserver.broker_session import BrokerSession
from aerobee.nameserver.log_reach import LogPositions
from aerobee.nameserver.notifier import Notifier
from aerobee.nameserver.registry import Registry
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.stored import BrokerKey
from aerobee.runtime.call_context import current_ids
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy, InvalidArgument, RegistryUnavailable
from aerobee.runtime.log import log_event
from aerobee.v1 import nameserver_pb2

log = logging.getLogger(__name__)

SHOWN_TIMEOUT_S = 0.5
NOTE_LOOK_INTERVAL_S = 1.0
STREAM_END_TIMEOUT_S = 0.5
"""How long a new stream waits for the end of its process's previous one."""


class StreamEnds:
    """Ends of streams that are not recorded yet; bounded by the number of brokers that were
    connected."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiting: dict[BrokerKey, str] = {}
        self._wake = asyncio.Event()
        self._noted = Notifier()

    def ended(self, key: BrokerKey, stream: str) -> None:
        """A stream of this broker has ended."""
        self._waiting[key] = stream
        self._wake.set()

    async def settled(self, key: BrokerKey, timeout_s: float) -> None:
        """Returns once nothing about this broker remains to be recorded, or after `timeout_s`."""
        await self._noted.wait_until(lambda: key not in self._waiting, timeout_s)

    async def run(self) -> None:
        """Runs until cancelled. What cannot be recorded is left to the lease."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for key, stream in list(self._waiting.items()):
                try:
                    await self._registry.note_disconnected(key, stream)
                except RegistryUnavailable as error:
                    log_event(
                        log, "end of a stream not recorded", level=logging.DEBUG, reason=error
                    )
                if self._waiting.get(key) == stream:
                    del self._waiting[key]
            self._noted.notify()


class BrokerSessions:
    """All sessions of this nameserver."""

    def __init__(
        self,
        registry: Registry,
        cache: RouteCache,
        positions: LogPositions,
        *,
        cluster: str,
        clock: Clock,
    ) -> None:
        self.registry = registry
        self.cache = cache
        self.positions = positions
        self.cluster = cluster
        self.clock = clock
        self.ends = StreamEnds(registry)
        self.heard = Notifier()
        """Notified after every heartbeat."""
        self._open: dict[BrokerKey, BrokerSession] = {}
        self._streams = 0

    def name_stream(self) -> str:
        """A new stream's name in etcd and in the logs of both sides."""
        self._streams += 1
        return f"{current_ids().request_id}/{self._streams}"

    def __len__(self) -> int:
        """The number of brokers connected here."""
        return len(self._open)

    async def admit(self, heartbeat: nameserver_pb2.BrokerHeartbeat) -> BrokerSession:
        """`open`, once no other stream of that process is heard.

        Raises:
            InvalidArgument, IllegalName: as `open`.
            Busy: another stream of that process is heard.
        """
        identity = heartbeat.identity
        await self._until_unheard(convert.broker_key(identity), identity.instance)
        return self.open(heartbeat)

    def open(self, heartbeat: nameserver_pb2.BrokerHeartbeat) -> BrokerSession:
        """The session of a stream's first heartbeat. It is private until that is answered: its
        broker may be refused.

        Raises:
            InvalidArgument, IllegalName: the heartbeat does not identify the broker.
        """
        identity = heartbeat.identity
        if identity.cluster not in ("", self.cluster):
            raise InvalidArgument(
                f"this nameserver serves cluster {self.cluster!r}, not {identity.cluster!r}"
            )
        names.check_group_name(identity.broker_name)
        if identity.broker_id < 0:
            raise InvalidArgument(f"broker id {identity.broker_id} is negative; use 0, 1, ...")
        if not identity.instance or not heartbeat.address:
            raise InvalidArgument("a heartbeat needs the broker's instance and address")
        key = convert.broker_key(identity)
        session = BrokerSession(self, key, identity.instance)
        session.heartbeat = heartbeat
        return session

    async def _until_unheard(self, key: BrokerKey, instance: str) -> None:
        """A process has one stream; the next one may be here before the previous one ends. Raises
        Busy: the previous one is still heard, so this one may be another process."""

        def is_unheard() -> bool:
            known = self._open.get(key)
            return known is None or known.instance != instance or not known.is_heard

        if not await self.heard.wait_until(is_unheard, STREAM_END_TIMEOUT_S):
            raise Busy(
                f"broker {key.broker_name}/{key.broker_id} already has another stream of the same "
                "process; try again once that one has ended"
            )

    def registered(self, session: BrokerSession) -> None:
        """A session's broker is registered: it replaces an earlier stream of the broker."""
        self._open[session.key] = session

    def keep(self, session: BrokerSession) -> None:
        """Keep a session that is heard, although its broker may not be registered yet: etcd may be
        away."""
        self._open.setdefault(session.key, session)

    def close(self, session: BrokerSession, *, is_lost: bool) -> None:
        """A stream has ended; `is_lost`: not because this nameserver is stopping."""
        if self._open.get(session.key) is session:
            del self._open[session.key]
            if is_lost:
                self.ends.ended(session.key, session.stream)
            self.positions.forget(session.key)
            self.heard.notify()

    def get(self, key: BrokerKey) -> BrokerSession | None:
        return self._open.get(key)

    async def keep_noting(self) -> None:
        """Record in etcd how far the log of every connected broker is confirmed and on disk; runs
        until cancelled. What is not recorded in time is recorded later: an old copy of a folder is
        detected by what was recorded before it was put back."""
        while True:
            await asyncio.sleep(NOTE_LOOK_INTERVAL_S)
            try:
                await self.note_durable()
            except RegistryUnavailable as error:
                log_event(log, "ends of logs not recorded", level=logging.DEBUG, reason=error)

    async def note_durable(self) -> None:
        """One round. Raises RegistryUnavailable: etcd is away; the remaining sessions are not
        tried."""
        for session in list(self._open.values()):
            await session.note_durable(self.clock.monotonic_s())

    async def wait_shown(self, revision: int) -> None:
        """Wait until the routes show a change, so that a caller that learns of it can use it;
        not for long, in case etcd's events do not arrive."""
        await self.cache.wait_version(revision, SHOWN_TIMEOUT_S)

    async def wait_informed(
        self, broker_names: Collection[str], revision: int, timeout_s: float
    ) -> bool:
        """Whether those brokers of these replica sets that are connected here have stored
        `revision`.

        Lets the creator of a topic use it at once; brokers connected elsewhere learn of it as fast,
        but cannot be waited for.
        """

        def all_know() -> bool:
            return all(
                session.known_revision >= revision
                for key, session in self._open.items()
                if key.broker_name in broker_names
            )

        return await self.heard.wait_until(all_know, timeout_s)
