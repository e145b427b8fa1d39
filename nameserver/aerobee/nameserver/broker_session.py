"""One connected broker: the domain half of its Register stream, whose messages service.py moves.

Owns: the broker's last heartbeat, its registration, and what it was last told.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from aerobee.nameserver import convert
from aerobee.nameserver.election import LiveReplicas, has_master
from aerobee.nameserver.registry import Registered, same_position
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.stored import EPOCH_MAX, BrokerKey, BrokerRecord, ReplicaSet, SetState
from aerobee.runtime.errors import InvalidArgument, RegistryUnavailable
from aerobee.runtime.log import log_event
from aerobee.v1 import common_pb2, nameserver_pb2

if TYPE_CHECKING:
    from aerobee.nameserver.sessions import BrokerSessions

log = logging.getLogger(__name__)

ETCD_TIMEOUT_S = 2.0
"""A heartbeat is answered within this time, if necessary from what is already known."""
ENDS_TIMEOUT_S = 0.5
"""How long a first heartbeat waits until the end of its predecessor's stream has been recorded."""
LATE_HEARTBEATS = 1.5
"""In heartbeat intervals: a broker whose next heartbeat is half an interval late counts as not
heard."""
NOTE_INTERVAL_S = 5.0
"""How often, at most, etcd is told how far a broker's log is confirmed and on disk."""


class BrokerSession:
    """One connected broker."""

    def __init__(self, sessions: BrokerSessions, key: BrokerKey, instance: str) -> None:
        self.key = key
        self.instance = instance
        self.stream = sessions.name_stream()
        self.heartbeat = nameserver_pb2.BrokerHeartbeat()
        self.heartbeat_s = 0.0
        self._sessions = sessions
        self._registered: Registered | None = None
        self._replica_set: ReplicaSet | None = None
        self._live_in_etcd: LiveReplicas | None = None
        """As of the last renewal, if the routes were stale then."""
        self._renewed_sequence = 0
        self._told = nameserver_pb2.BrokerDirective()
        self._stale = False
        self._topics_known = 0
        self._access_told: str | None = None
        """The version of users and policies that the broker has; None: none were sent on this
        stream."""
        self._noted = ("", 0)
        """Incarnation and end of the log that are known to be recorded in etcd."""
        self._noted_s = float("-inf")

    def __repr__(self) -> str:
        return f"<BrokerSession {self.key} lost={self._registered is None}>"

    async def beat(
        self, heartbeat: nameserver_pb2.BrokerHeartbeat
    ) -> nameserver_pb2.BrokerDirective:
        """Renew the registration; the answer is what the broker must know.

        Raises:
            DuplicateBroker: another live process has this broker's identity.
            ReplicaIncomplete: its log lacks what its incarnation is known to have had.
            InvalidArgument: what the heartbeat says makes no sense.
        """
        check_heartbeat(heartbeat)
        identity = heartbeat.identity
        if (convert.broker_key(identity), identity.instance) != (self.key, self.instance):
            raise InvalidArgument(
                "a registration stream belongs to one process of one broker; open another stream"
            )
        self.heartbeat = heartbeat
        self.heartbeat_s = self._sessions.clock.monotonic_s()
        record = self._record(heartbeat)
        # Before any election that this heartbeat may cause.
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
        self._check_belongs()
        self._sessions.keep(self)
        self._sessions.heard.notify()
        self._told = self._unsent_directive(self.known_revision)
        # Once on each stream, even if there are none.
        is_first = self._access_told is None
        self._tell_access(self._told, None if is_first else heartbeat.access_version)
        return self._told

    def _check_belongs(self) -> None:
        """Raises InvalidArgument: an operator has removed the broker group."""
        if self._replica_set is not None and self._replica_set.state is SetState.REMOVED:
            self._registered = None
            raise InvalidArgument(
                f"broker group {self.key.broker_name!r} was removed from the cluster: stop this "
                "broker; a new one needs another name"
            )

    async def leave(self, heartbeat: nameserver_pb2.BrokerHeartbeat) -> None:
        """The broker is stopping: end its registration at once if etcd can be reached.

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
                "registration kept until its lease ends",
                level=logging.WARNING,
                broker=self.key.broker_name,
                broker_id=self.key.broker_id,
                reason=error,
            )

    @property
    def is_heard(self) -> bool:
        """Whether its heartbeats arrive on time."""
        lease_ms = self._sessions.registry.lease_duration_ms(self.heartbeat.lease_duration_ms)
        silent_s = self._sessions.clock.monotonic_s() - self.heartbeat_s
        return silent_s < LATE_HEARTBEATS * lease_ms / 3_000

    @property
    def known_revision(self) -> int:
        """The broker has all topic changes up to here; 0: what it has comes from another etcd."""
        heartbeat = self.heartbeat
        return self._in_our_history(heartbeat.metadata_revision, heartbeat.metadata_history)

    def _in_our_history(self, revision: int, history: str) -> int:
        """The revision, or 0 if it counts in another etcd's history. A broker of an earlier version
        does not say."""
        cache = self._sessions.cache
        ours = cache.table.history if cache.version > 0 else ""
        is_told = self.heartbeat.HasField("metadata_history")
        return 0 if ours and is_told and history != ours else revision

    def _record(self, heartbeat: nameserver_pb2.BrokerHeartbeat) -> BrokerRecord:
        """The record to be in etcd. How far the broker knows the topics is written again only after
        it has learned of another deletion."""
        known, cache = self.known_revision, self._sessions.cache
        last_deletion = cache.table.last_deletion if cache.version > 0 else 0
        # A revision of another history means nothing any more.
        before = min(self._topics_known, known)
        self._topics_known = known if before < last_deletion <= known else before
        return dataclasses.replace(
            convert.broker_record(heartbeat),
            stream=self.stream,
            topics_known=self._topics_known,
            lease_ms=self._sessions.registry.lease_duration_ms(heartbeat.lease_duration_ms),
        )

    async def note_durable(self, now_s: float) -> None:
        """Record in etcd how far the log is confirmed and on disk, if that has changed; rarely,
        because each time costs etcd a write.

        Raises RegistryUnavailable: it is unknown whether it was recorded.
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
        told = self._told
        directive = self._unsent_directive(
            self._in_our_history(told.metadata_revision, told.metadata_history)
        )
        self._tell_access(directive, self._access_told)
        is_news = (
            directive.topics
            or directive.HasField("access")
            or directive.topics_complete
            or directive.role != self._told.role
            or directive.group != self._told.group
            or directive.replicas != self._told.replicas
        )
        if not is_news:
            return None
        self._told = directive
        return directive

    def _tell_access(self, directive: nameserver_pb2.BrokerDirective, known: str | None) -> None:
        """Users and policies, unless the broker already has this version, `known`."""
        cache = self._sessions.cache
        if cache.version == 0:
            return
        records = cache.table.access.records
        self._access_told = records.version
        if records.version != known:
            directive.access.CopyFrom(convert.access_records(records))

    async def _renew(self, record: BrokerRecord, heartbeat: nameserver_pb2.BrokerHeartbeat) -> None:
        registry, before = self._sessions.registry, self._registered
        lease_ms = heartbeat.lease_duration_ms
        opened_end = heartbeat.opened_end if heartbeat.HasField("opened_end") else None
        if before is None:
            # A restarted broker may be here before the end of its predecessor's stream has been
            # recorded.
            await self._sessions.ends.settled(self.key, ENDS_TIMEOUT_S)
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
        self._learn(registered.replica_set)
        if before is None or before.record.revision != registered.record.revision:
            revision = max(registered.record.revision, registered.replica_set.revision)
            await self._sessions.wait_shown(revision)

    def _hear_positions(self, record: BrokerRecord) -> None:
        """How far the log reaches and, on a master, how far it is confirmed. Only from a registered
        process: what others claim must neither stop nor start an election."""
        if self._registered is None:
            return
        self._sessions.positions.heard(record)
        replica_set, heartbeat = self._replica_set, self.heartbeat
        if replica_set is not None and heartbeat.epoch == replica_set.epoch:
            master = (replica_set.master_id, replica_set.master_instance)
            if master == (self.key.broker_id, record.instance):
                end = min(heartbeat.confirmed_end, heartbeat.log_end)
                self._sessions.positions.confirmed(replica_set, end)

    def _needs_claim(self, registered: Registered, record: BrokerRecord) -> bool:
        """Whether the routes, if newer than our registration, show that the registration is not
        enough, or, being stale, show nothing. The broker must not be answered from an older record
        then: it would renew nothing, or follow a replaced master. A claim reads what etcd has, and
        writes nothing if all is well."""
        cache = self._sessions.cache
        if cache.stale:
            return True
        if cache.version < registered.record.revision:
            return False
        shown = cache.table.brokers.get(self.key)
        if shown is None or shown.revision != registered.record.revision:
            return True  # gone, or written by another stream of this broker
        replica_set = cache.table.replica_sets.get(self.key.broker_name)
        if replica_set is None:
            return True
        # An election is due, and needs to know how far this log reaches.
        is_orphan = not has_master(replica_set, cache.table.replicas_of(replica_set))
        return is_orphan and not same_position(shown, record)

    def _learn(self, replica_set: ReplicaSet | None) -> None:
        """Remember the newest record; an older one comes from routes that are behind etcd."""
        if replica_set is not None and (
            self._replica_set is None or replica_set.revision > self._replica_set.revision
        ):
            self._replica_set = replica_set

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
            self._learn(table.replica_sets.get(self.key.broker_name))
            changes = table.topic_changes_after(known_revision)
            directive.topics.extend(convert.changed_topics(changes))
            directive.topics_complete = changes.complete
            directive.metadata_revision = changes.revision
            directive.metadata_history = table.history
        if self._replica_set is not None:
            self._describe_replica_set(directive, self._replica_set, table)
        return directive

    def _describe_replica_set(
        self,
        directive: nameserver_pb2.BrokerDirective,
        replica_set: ReplicaSet,
        table: RouteTable | None,
    ) -> None:
        own = convert.broker_record(self.heartbeat)
        live = self._live_replicas(replica_set, table)
        live[self.key.broker_id] = own
        directive.role = convert.broker_role(replica_set, own)
        directive.epoch = replica_set.epoch
        directive.group.CopyFrom(convert.replica_set_record(replica_set))
        directive.replicas.extend(
            convert.broker_endpoint(self._sessions.cluster, replica_set, live[broker_id])
            for broker_id in sorted(live)
        )

    def _live_replicas(
        self, replica_set: ReplicaSet, table: RouteTable | None
    ) -> dict[int, BrokerRecord]:
        seen = self._live_in_etcd
        if seen is not None and self._sessions.cache.stale:
            return {
                broker_id: seen[broker_id]
                for broker_id in replica_set.replicas
                if broker_id in seen
            }
        return {} if table is None else table.replicas_of(replica_set)


@contextlib.asynccontextmanager
async def _etcd_time() -> AsyncIterator[None]:
    """Raises RegistryUnavailable if the block takes etcd too long."""
    try:
        async with asyncio.timeout(ETCD_TIMEOUT_S) as scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        raise RegistryUnavailable(
            f"cannot reach etcd: it did not answer within {ETCD_TIMEOUT_S:g} s"
        ) from None


ADDRESS_LENGTH_MAX = 300
"""A DNS name has at most 253 characters."""
NAME_LENGTH_MAX = 100
"""Of an instance or an incarnation; brokers generate 16 characters."""
TROUBLE_LENGTH_MAX = 1_000


def check_heartbeat(heartbeat: nameserver_pb2.BrokerHeartbeat) -> None:
    """Shortens and cleans a broker's free text, which is shown to operators and written to etcd.

    Raises InvalidArgument: its numbers or names make no sense.
    """
    for name in (
        "log_epoch",
        "log_end",
        "resigned_epoch",
        "durable_end",
        "opened_end",
        "confirmed_end",
        "epoch",
    ):
        number = getattr(heartbeat, name)
        if not 0 <= number <= EPOCH_MAX:
            raise InvalidArgument(f"a heartbeat's {name} cannot be {number}")
    if heartbeat.HasField("successor_id") and heartbeat.successor_id < -1:
        raise InvalidArgument(f"successor id {heartbeat.successor_id} is negative")
    _check_text("address", heartbeat.address, ADDRESS_LENGTH_MAX)
    _check_text("outside address", heartbeat.outside_address, ADDRESS_LENGTH_MAX)
    _check_text("zone", heartbeat.zone, NAME_LENGTH_MAX)
    _check_text("instance", heartbeat.identity.instance, NAME_LENGTH_MAX)
    _check_text("incarnation", heartbeat.incarnation, NAME_LENGTH_MAX)
    _check_text("predecessor", heartbeat.predecessor, NAME_LENGTH_MAX)
    _check_text("metadata history", heartbeat.metadata_history, NAME_LENGTH_MAX)
    heartbeat.replication_trouble = _cleaned(heartbeat.replication_trouble, TROUBLE_LENGTH_MAX)


def _check_text(name: str, text: str, length_max: int) -> None:
    if len(text) > length_max or not text.isprintable() or " " in text:
        raise InvalidArgument(
            f"a heartbeat's {name} has at most {length_max} characters, without spaces and control "
            f"characters: {text[:length_max]!r}"
        )


def _cleaned(text: str, length_max: int) -> str:
    shown = text if len(text) <= length_max else text[:length_max] + "..."
    return "".join(one if one.isprintable() else " " for one in shown)
