"""The brokers that are connected to this nameserver, and what their sessions share.

Owns: the session of each connected broker; broker_session.py is one of them.
"""

from __future__ import annotations

from collections.abc import Collection

from aerobee.nameserver import convert
from aerobee.nameserver.broker_session import BrokerSession
from aerobee.nameserver.log_positions import LogPositions
from aerobee.nameserver.notifier import Notifier
from aerobee.nameserver.registry import Registry
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.stored import BrokerKey
from aerobee.nameserver.stream_ends import StreamEnds
from aerobee.runtime import names
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy, InvalidArgument
from aerobee.v1 import nameserver_pb2

SHOWN_TIMEOUT_S = 0.5
STREAM_END_TIMEOUT_S = 0.5
"""How long a new stream waits for the end of the last one of its process."""


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

    def __len__(self) -> int:
        """Brokers that are connected here."""
        return len(self._open)

    async def admit(self, heartbeat: nameserver_pb2.BrokerHeartbeat) -> BrokerSession:
        """`open`, once no other stream of that process is heard.

        Raises:
            InvalidArgument, IllegalName: as `open`.
            Busy: that process is heard by another stream.
        """
        identity = heartbeat.identity
        await self._until_unheard(convert.broker_key(identity), identity.instance)
        return self.open(heartbeat)

    def open(self, heartbeat: nameserver_pb2.BrokerHeartbeat) -> BrokerSession:
        """The session of a stream's first heartbeat. Nobody else sees it before it is answered:
        its broker may be refused.

        Raises:
            InvalidArgument, IllegalName: the heartbeat does not say who it is.
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
        """A process has one stream; its next one may be here before the end of the last. Raises
        Busy: that one is heard, so whoever speaks now may be another process."""

        def is_unheard() -> bool:
            known = self._open.get(key)
            return known is None or known.instance != instance or not known.is_heard

        if not await self.heard.wait_until(is_unheard, STREAM_END_TIMEOUT_S):
            raise Busy(
                f"broker {key.broker_name}/{key.broker_id} is heard by another stream of the "
                "same process; trying again, should that one have ended"
            )

    def registered(self, session: BrokerSession) -> None:
        """A session's broker is registered: it replaces an earlier stream of the broker."""
        self._open[session.key] = session

    def keep(self, session: BrokerSession) -> None:
        """A session is heard, though its broker may not be registered yet: etcd may be away."""
        self._open.setdefault(session.key, session)

    def close(self, session: BrokerSession, *, is_lost: bool) -> None:
        """A stream has ended; `is_lost`: not because this nameserver stops."""
        if self._open.get(session.key) is session:
            del self._open[session.key]
            if is_lost and session.registered_record is not None:
                self.ends.ended(session.registered_record)
            self.positions.forget(session.key)
            self.heard.notify()

    def get(self, key: BrokerKey) -> BrokerSession | None:
        return self._open.get(key)

    async def note_durable(self) -> None:
        """Let etcd know of every connected broker how far its log is confirmed and on its disk.

        Raises RegistryUnavailable: etcd is away; the others are not tried.
        """
        for session in list(self._open.values()):
            await session.note_durable(self.clock.monotonic_s())

    async def wait_shown(self, revision: int) -> None:
        """Until the routes show a change, so that who hears of it can use it; not for long, should
        etcd's events not arrive."""
        await self.cache.wait_version(revision, SHOWN_TIMEOUT_S)

    async def wait_informed(
        self, broker_names: Collection[str], revision: int, timeout_s: float
    ) -> bool:
        """Whether the brokers of these groups that are connected here have stored `revision`.

        Lets the creator of a topic use it at once; brokers connected elsewhere hear of it as fast,
        but cannot be waited for.
        """

        def all_know() -> bool:
            return all(
                session.known_revision >= revision
                for key, session in self._open.items()
                if key.broker_name in broker_names
            )

        return await self.heard.wait_until(all_know, timeout_s)
