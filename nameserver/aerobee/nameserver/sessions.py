"""The brokers that are connected to this nameserver: heartbeats in, directives out.

Owns: the last heartbeat of each connected broker, and what each was told last. A session is the
domain half of one Register stream; service.py moves its messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Collection

from aerobee.nameserver import convert
from aerobee.nameserver.election import LiveReplicas, has_master
from aerobee.nameserver.heartbeats import check_heartbeat
from aerobee.nameserver.log_positions import LogPositions
from aerobee.nameserver.notifier import Notifier
from aerobee.nameserver.registry import Registered, Registry, same_position
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.stored import BrokerGroup, BrokerKey, BrokerRecord
from aerobee.nameserver.stream_ends import StreamEnds
from aerobee.runtime import names
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import InvalidArgument, RegistryUnavailable
from aerobee.runtime.log import log_event
from aerobee.v1 import common_pb2, nameserver_pb2

log = logging.getLogger(__name__)

ETCD_TIMEOUT_S = 2.0
"""A heartbeat is answered within this time, if need be with what is known."""
SHOWN_TIMEOUT_S = 0.5
NOTE_INTERVAL_S = 5.0
"""At most so often it is noted in etcd how far a broker's log is confirmed and on its disk."""


class BrokerSession:
    """One connected broker."""

    def __init__(self, sessions: BrokerSessions, key: BrokerKey, instance: str) -> None:
        self.key = key
        self.instance = instance
        self.heartbeat = nameserver_pb2.BrokerHeartbeat()
        self.heartbeat_s = 0.0
        self._sessions = sessions
        self._registered: Registered | None = None
        self._group: BrokerGroup | None = None
        self._live_in_etcd: LiveReplicas | None = None
        """As of the last renewal, if the routes were stale then."""
        self._renewed_sequence = 0
        self._told = nameserver_pb2.BrokerDirective()
        self._stale = False
        self._noted = ("", 0)
        """Incarnation and end of the log that etcd is known to have noted."""
        self._noted_s = float("-inf")

    def __repr__(self) -> str:
        return f"<BrokerSession {self.key} lost={self._registered is None}>"

    async def beat(
        self, heartbeat: nameserver_pb2.BrokerHeartbeat
    ) -> nameserver_pb2.BrokerDirective:
        """Renew the registration; the answer says what the broker must know.

        Raises:
            DuplicateBroker: another live process has this broker's identity.
            ReplicaIncomplete: its log lacks what its incarnation is known to have had.
            InvalidArgument: what the heartbeat says makes no sense.
        """
        check_heartbeat(heartbeat)
        self.heartbeat = heartbeat
        self.heartbeat_s = self._sessions.clock.monotonic_s()
        record = convert.broker_record(heartbeat)
        # Before an election that this heartbeat may bring about.
        self._hear_positions(record)
        try:
            async with _etcd_time():
                await self._renew(record, heartbeat)
            self._renewed_sequence = heartbeat.sequence
            self._stale = False
        except RegistryUnavailable as error:
            if not self._stale:
                log_event(
                    log,
                    "registration not renewed",
                    level=logging.WARNING,
                    broker=self.key.broker_name,
                    broker_id=self.key.broker_id,
                    reason=error,
                )
            self._stale = True
        self._hear_positions(record)
        self._sessions.keep(self)
        self._sessions.heard.notify()
        return self._directive(heartbeat.metadata_revision)

    async def leave(self, heartbeat: nameserver_pb2.BrokerHeartbeat) -> None:
        """The broker stops: end its registration at once if etcd can be reached.

        Raises InvalidArgument: what the heartbeat says makes no sense.
        """
        check_heartbeat(heartbeat)
        log_event(
            log,
            "broker leaves",
            broker=self.key.broker_name,
            broker_id=self.key.broker_id,
            instance=self.instance,
        )
        self._hear_positions(convert.broker_record(heartbeat))
        self._registered = None
        try:
            async with _etcd_time():
                await self._sessions.registry.leave(
                    self.key, self.instance, durable_end=convert.durable_end(heartbeat)
                )
        except RegistryUnavailable as error:
            log_event(
                log,
                "registration left to its lease",
                level=logging.WARNING,
                broker=self.key.broker_name,
                broker_id=self.key.broker_id,
                reason=error,
            )

    @property
    def registered_record(self) -> BrokerRecord | None:
        """What stands in etcd for this stream; None: nothing, or no more."""
        return None if self._registered is None else self._registered.record

    async def note_durable(self, now_s: float) -> None:
        """Let etcd know how far the log is confirmed and on the disk, if that is news; seldom, for
        each time costs etcd a write.

        Raises RegistryUnavailable: it is unknown whether it was noted.
        """
        registered, end = self._registered, convert.durable_end(self.heartbeat)
        if registered is None or end == 0 or now_s < self._noted_s + NOTE_INTERVAL_S:
            return
        durable = registered.record.incarnation, end
        if durable == self._noted:
            return
        self._noted_s = now_s
        if await self._sessions.registry.note_durable(registered.record, end):
            self._noted = durable

    def news(self) -> nameserver_pb2.BrokerDirective | None:
        """A directive that cannot wait for the next heartbeat, if there is one."""
        directive = self._unsent_directive(self._told.metadata_revision)
        is_news = (
            directive.topics
            or directive.topics_complete
            or directive.role != self._told.role
            or directive.group != self._told.group
            or directive.replicas != self._told.replicas
        )
        if not is_news:
            return None
        self._told = directive
        return directive

    async def _renew(self, record: BrokerRecord, heartbeat: nameserver_pb2.BrokerHeartbeat) -> None:
        registry, before = self._sessions.registry, self._registered
        lease_ms = heartbeat.lease_duration_ms
        opened_end = heartbeat.opened_end if heartbeat.HasField("opened_end") else None
        if before is None:
            # A restart may be here before the end of its predecessor's stream is noted.
            await self._sessions.ends.settled(self.key, SHOWN_TIMEOUT_S)
            registered = await registry.register(record, lease_ms, opened_end=opened_end)
            self._sessions.registered(self)
            log_event(
                log,
                "broker registered",
                broker=self.key.broker_name,
                broker_id=self.key.broker_id,
                address=record.address,
                lease_ms=registered.lease_duration_ms,
            )
        elif self._needs_claim(before, record):
            registered = await registry.register(
                record, lease_ms, is_start=False, opened_end=opened_end
            )
        else:
            registered = await registry.renew(before, record, lease_ms, opened_end=opened_end)
        self._registered = registered
        self._live_in_etcd = registered.live if self._sessions.cache.stale else None
        self._learn(registered.group)
        if before is None or before.record.revision != registered.record.revision:
            revision = max(registered.record.revision, registered.group.revision)
            await self._sessions.wait_shown(revision)

    def _hear_positions(self, record: BrokerRecord) -> None:
        """How far the log reaches, and as master also is confirmed. Of a registered process only:
        what others say of it must stop no election, and begin none."""
        if self._registered is None:
            return
        self._sessions.positions.heard(record)
        group, heartbeat = self._group, self.heartbeat
        if group is not None and heartbeat.epoch == group.epoch:
            master = (group.master_id, group.master_instance)
            if master == (self.key.broker_id, record.instance):
                end = min(heartbeat.confirmed_end, heartbeat.log_end)
                self._sessions.positions.confirmed(group, end)

    def _needs_claim(self, registered: Registered, record: BrokerRecord) -> bool:
        """Whether the routes, being newer than our registration, show that it is not enough; or
        show nothing, for they are stale. The broker must not be told of an older record then, which
        would renew nothing, or follow a master that was replaced: a claim reads what etcd has, and
        writes nothing if all is well."""
        cache = self._sessions.cache
        if cache.stale:
            return True
        if cache.version < registered.record.revision:
            return False
        shown = cache.table.brokers.get(self.key)
        if shown is None or shown.revision != registered.record.revision:
            return True  # gone, or written by another stream of this broker
        group = cache.table.groups.get(self.key.broker_name)
        if group is None:
            return True
        # An election is due, and must know how far this log reaches.
        is_orphan = not has_master(group, cache.table.replicas_of(group))
        return is_orphan and not same_position(shown, record)

    def _learn(self, group: BrokerGroup | None) -> None:
        """Remember the newest record; older ones come from routes that lag behind etcd."""
        if group is not None and (self._group is None or group.revision > self._group.revision):
            self._group = group

    def _directive(self, known_revision: int) -> nameserver_pb2.BrokerDirective:
        self._told = self._unsent_directive(known_revision)
        return self._told

    def _unsent_directive(self, known_revision: int) -> nameserver_pb2.BrokerDirective:
        lease_ms = self._sessions.registry.lease_duration_ms(self.heartbeat.lease_duration_ms)
        if self._registered is not None:
            lease_ms = self._registered.lease_duration_ms
        directive = nameserver_pb2.BrokerDirective(
            status=common_pb2.Status(code=common_pb2.OK),
            lease_duration_ms=lease_ms,
            stale=self._stale,
            renewed_sequence=self._renewed_sequence,
            metadata_revision=known_revision,
        )
        table = self._sessions.cache.table if self._sessions.cache.version > 0 else None
        if table is not None:
            self._learn(table.groups.get(self.key.broker_name))
            changes = table.topic_changes_after(known_revision)
            directive.topics.extend(convert.changed_topics(changes))
            directive.topics_complete = changes.complete
            directive.metadata_revision = changes.revision
        if self._group is not None:
            self._describe_group(directive, self._group, table)
        return directive

    def _describe_group(
        self,
        directive: nameserver_pb2.BrokerDirective,
        group: BrokerGroup,
        table: RouteTable | None,
    ) -> None:
        own = convert.broker_record(self.heartbeat)
        live = self._live_replicas(group, table)
        live[self.key.broker_id] = own
        directive.role = convert.broker_role(group, own)
        directive.epoch = group.epoch
        directive.group.CopyFrom(convert.group_record(group))
        directive.replicas.extend(
            convert.broker_endpoint(self._sessions.cluster, group, live[broker_id])
            for broker_id in sorted(live)
        )

    def _live_replicas(
        self, group: BrokerGroup, table: RouteTable | None
    ) -> dict[int, BrokerRecord]:
        seen = self._live_in_etcd
        if seen is not None and self._sessions.cache.stale:
            return {broker_id: seen[broker_id] for broker_id in group.replicas if broker_id in seen}
        return {} if table is None else table.replicas_of(group)


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
                session.heartbeat.metadata_revision >= revision
                for key, session in self._open.items()
                if key.broker_name in broker_names
            )

        return await self.heard.wait_until(all_know, timeout_s)


@contextlib.asynccontextmanager
async def _etcd_time() -> AsyncIterator[None]:
    """Raises RegistryUnavailable when what is done within takes etcd too long."""
    try:
        async with asyncio.timeout(ETCD_TIMEOUT_S):
            yield
    except TimeoutError:
        raise RegistryUnavailable(
            f"cannot reach etcd: it did not answer within {ETCD_TIMEOUT_S:g} s"
        ) from None
