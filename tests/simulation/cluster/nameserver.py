"""A nameserver's shell around the election: sessions with brokers, a cache fed by a watch.

It makes the same etcd calls as the real one, in the same order: a claim reads, keeps the lease of
the same instance or gets a new one, and writes by compare-and-swap; a renewal keeps the lease
alive. All decisions about the group are `elect` and `alter_in_sync_set`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aerobee.nameserver.election import Election, alter_in_sync_set, has_master, with_replica
from aerobee.nameserver.log_reach import LogPositions, compared, named_in_sync
from aerobee.nameserver.registry import with_resignation
from aerobee.nameserver.replica_sets import is_hasty
from aerobee.nameserver.stored import (
    BrokerKey,
    BrokerRecord,
    DurableLog,
    DurableLogs,
    InSyncReplica,
    ReplicaSet,
)
from aerobee.runtime.errors import AerobeeError
from tests.simulation.cluster.etcd_server import GROUP, Content, EtcdServer, Key, Stored
from tests.simulation.cluster.heartbeats import Directive, Heartbeat
from tests.simulation.cluster.kernel import Place, Process
from tests.simulation.cluster.network import Stream
from tests.simulation.cluster.registrations import has_changed, is_whole, record_of

if TYPE_CHECKING:
    from tests.simulation.cluster.world import World

ETCD_TIMEOUT_S = 0.7
TICK_S = 1.0
ATTEMPTS_MAX = 4
HEARD_PAUSE_S = 1.5
"""Longer than all replicas take to send a heartbeat. Like the real one's 5 s, it is at least as
long as a registration outlives the last heartbeat: a silent replica is gone by then."""


@dataclass(slots=True)
class Session:
    """One broker's stream."""

    stream: Stream
    heartbeat: Heartbeat
    registered: BrokerRecord | None = None
    is_busy: bool = False
    is_over: bool = False
    renewed_sequence: int = 0
    group: ReplicaSet | None = None
    """The newest record sent on this stream."""


class Nameserver(Process):
    """One run of a nameserver."""

    __slots__ = (
        "_brokers",
        "_electing",
        "_group",
        "_positions",
        "_sessions",
        "_short_since_s",
        "_waiting",
        "_watch",
        "_watched_revision",
        "_world",
    )

    def __init__(self, world: World, place: Place) -> None:
        super().__init__(place)
        self._world = world
        self._sessions: dict[Stream, Session] = {}
        self._waiting: dict[object, tuple[float, Callable[[Any], None]]] = {}
        self._watch: Stream | None = None
        self._watched_revision = 0
        self._group: ReplicaSet | None = None
        self._brokers: dict[int, BrokerRecord] = {}
        self._electing = False
        self._positions = LogPositions()
        self._short_since_s: float | None = None
        world.kernel.after(0.0, self, Nameserver.tick)

    # ------------------------------------------------------------------------------ etcd

    def _ask(self, call: Callable[[EtcdServer], Any], then: Callable[[Any], None]) -> None:
        """`then` gets the result, or None if it is unknown whether the call was made."""
        token = object()  # another process at this place does not recognise it as its own
        self._waiting[token] = self._clock_s() + ETCD_TIMEOUT_S, then
        world = self._world
        answer = Nameserver.answered
        world.network.post(
            self.place, world.etcd_place, EtcdServer.request, self.place, answer, token, call
        )

    def answered(self, token: object, result: Any) -> None:
        waiting = self._waiting.pop(token, None)
        if waiting is not None:
            waiting[1](result)

    def tick(self) -> None:
        """From time to time: handles unanswered requests, the watch, and an election."""
        now_s = self._clock_s()
        late = [token for token, (end_s, _) in self._waiting.items() if end_s <= now_s]
        for token in late:
            waiting = self._waiting.pop(token, None)
            if waiting is not None:
                waiting[1](None)
        etcd = self._world.etcd_place.process
        if self._watch is None and etcd is not None:
            self._watch = stream = Stream(self._world.network, self, etcd)
            stream.send(self, lambda server, stream: server.watch(stream))
        self._elect()
        self._world.kernel.after(TICK_S, self, Nameserver.tick)

    def _clock_s(self) -> float:
        return self._world.kernel.clock_s(self.place)

    # ------------------------------------------------------------------------------ cache

    def watch_snapshot(self, stream: Stream, content: Content) -> None:
        if stream is not self._watch:
            return
        self._watched_revision = content.revision
        self._group, self._brokers = content.group, dict(content.brokers)
        self._cache_changed()

    def watch_event(self, stream: Stream, key: Key, value: Stored | None, revision: int) -> None:
        if stream is not self._watch or revision < self._watched_revision:
            return
        self._watched_revision = revision
        if isinstance(value, ReplicaSet):
            self._group = value
        elif isinstance(value, BrokerRecord):
            self._brokers[value.key.broker_id] = value
        elif isinstance(key, BrokerKey):
            self._brokers.pop(key.broker_id, None)
        self._cache_changed()

    def _cache_changed(self) -> None:
        self._elect()
        for session in self._sessions.values():
            self._tell(session, self._group, is_news=True)

    def stream_ended(self, stream: object) -> None:
        if stream is self._watch:
            self._watch = None
        else:
            assert isinstance(stream, Stream)
            session = self._sessions.pop(stream, None)
            if session is not None:
                session.is_over = True
                broker_id = session.heartbeat.broker_id
                others = (one.heartbeat.broker_id for one in self._sessions.values())
                if broker_id not in others:
                    self._positions.forget(BrokerKey("g", broker_id))

    # ------------------------------------------------------------------------------ election

    def _elect(self) -> None:
        """When one is due, ask what etcd knows to be confirmed, and check again."""
        group, brokers = self._group, dict(self._brokers)
        if self._electing or group is None or self._due(group, brokers) is None:
            return
        self._electing = True

        def has_read(content: Content | None) -> None:
            election = None
            if content is not None:
                self._positions.read_notes(group, content.durable)
                election = self._due(group, brokers)
            if election is None:
                self._electing = False
            else:
                self._hold(group, election)

        self._ask(lambda server: server.read(), has_read)

    def _due(self, group: ReplicaSet, brokers: dict[int, BrokerRecord]) -> Election | None:
        """The election to be held now."""
        world, positions = self._world, self._positions
        election = world.variant.elect(
            group,
            positions.newest(brokers) if world.variant.hears_ends else brokers,
            allow_unclean=world.settings.unclean_election,
            confirmed_end=positions.confirmed_end(group),
        )
        if election is None or not (election.is_short and is_hasty(group, election)):
            self._short_since_s = None
            return election
        now_s = self._clock_s()
        if self._short_since_s is None:
            self._short_since_s = now_s
        pause_s = max(HEARD_PAUSE_S, world.settings.lease_ms / 1_000 + TICK_S)
        return None if now_s - self._short_since_s < pause_s else election

    def _hold(self, group: ReplicaSet, election: Election) -> None:
        world = self._world
        registrations: dict[Key, int] = dict(election.expects.items())
        expects = {GROUP: group.revision, **registrations}

        def done(result: tuple[bool, Content] | None) -> None:
            self._electing = False
            if result is not None and result[0]:
                world.note("%s elected: %s", self.place, result[1].group)

        self._ask(lambda server: server.transaction(expects, (election.replica_set,)), done)

    def _hear_positions(self, session: Session) -> None:
        """Positions reported by a registered broker."""
        heartbeat, group = session.heartbeat, session.group
        if session.registered is None:
            return
        key = BrokerKey("g", heartbeat.broker_id)
        self._positions.heard(record_of(key, heartbeat, 0))
        if (
            group is not None
            and heartbeat.epoch == group.epoch
            and (group.master_id, group.master_instance) == (key.broker_id, heartbeat.instance)
        ):
            self._positions.confirmed(group, min(heartbeat.confirmed_end, heartbeat.log_end))

    # ------------------------------------------------------------------------------ sessions

    def on_heartbeat(self, stream: Stream, heartbeat: Heartbeat) -> None:
        session = self._sessions.get(stream)
        if session is None:
            session = self._sessions[stream] = Session(stream, heartbeat)
        session.heartbeat = heartbeat
        self._hear_positions(session)
        if heartbeat.is_leaving:
            self._leave(session)
        elif not session.is_busy:
            self._renew(session)

    def _leave(self, session: Session) -> None:
        session.is_over = True
        instance, broker_id = session.heartbeat.instance, session.heartbeat.broker_id

        def leave(server: EtcdServer) -> None:
            record = server.read().brokers.get(broker_id)
            if record is not None and record.instance == instance:
                server.revoke(record.lease_id)

        self._ask(leave, lambda result: None)

    def _renew(self, session: Session) -> None:
        heartbeat = session.heartbeat
        session.is_busy = True
        registered = session.registered
        cached = self._brokers.get(heartbeat.broker_id)
        is_known = registered is not None and self._watched_revision >= registered.revision
        if registered is None or (
            is_known and (cached is None or cached.revision != registered.revision)
        ):
            # Gone, or written by another stream of this broker.
            self._claim(session, heartbeat, 0)
            return

        def kept(is_kept: bool | None) -> None:
            if is_kept is None:
                self._finish(session)
            elif not is_kept or has_changed(registered, heartbeat) or self._is_asked(heartbeat):
                self._claim(session, heartbeat, 0)
            else:
                self._renewed(session, heartbeat)

        lease_id = registered.lease_id
        log = DurableLog(heartbeat.incarnation, heartbeat.durable_end, heartbeat.instance)

        def keep(server: EtcdServer) -> bool:
            # The real one does this separately, and less often.
            server.note_durable(heartbeat.broker_id, log)
            return server.keep_alive(lease_id)

        self._ask(keep, kept)

    def _is_asked(self, heartbeat: Heartbeat) -> bool:
        """An election is due, and etcd does not know how far this log reaches."""
        group, cached = self._group, self._brokers.get(heartbeat.broker_id)
        if group is None or cached is None or has_master(group, self._brokers):
            return False
        position = cached.log_epoch, cached.log_end
        return self._world.variant.hears_ends and position != (
            heartbeat.log_epoch,
            heartbeat.log_end,
        )

    def _claim(self, session: Session, heartbeat: Heartbeat, attempt: int) -> None:
        """Read, get a lease, write: three calls to etcd."""

        def has_read(content: Content | None) -> None:
            if content is None or session.is_over or attempt >= ATTEMPTS_MAX:
                self._finish(session)
                return
            present = content.brokers.get(heartbeat.broker_id)
            if self._world.variant.refuses_copies and not is_whole(content, heartbeat):
                session.registered = None
                session.stream.send(
                    self, self._world.on_directive, Directive(0, 0, None, is_refused=True)
                )
                self._finish(session)
            elif not self._may_claim(session, heartbeat, present, content.group):
                session.registered = None
                self._tell(session, content.group)
                self._finish(session)
            else:
                self._get_lease(session, heartbeat, content, attempt)

        self._ask(lambda server: server.read(), has_read)

    def _get_lease(
        self, session: Session, heartbeat: Heartbeat, content: Content, attempt: int
    ) -> None:
        """The instance's existing lease, or a new one."""
        present = content.brokers.get(heartbeat.broker_id)

        def has_lease(lease_id: int | None) -> None:
            if lease_id is None:
                self._finish(session)
            elif lease_id == 0:
                self._claim(session, heartbeat, attempt + 1)
            else:
                self._write(session, heartbeat, content, lease_id, attempt)

        if present is not None and present.instance == heartbeat.instance:
            kept_id = present.lease_id
            self._ask(lambda server: kept_id if server.keep_alive(kept_id) else 0, has_lease)
        else:
            duration_s = self._world.settings.lease_ms / 1_000
            self._ask(lambda server: server.grant(duration_s), has_lease)

    def _write(
        self,
        session: Session,
        heartbeat: Heartbeat,
        content: Content,
        lease_id: int,
        attempt: int,
    ) -> None:
        present = content.brokers.get(heartbeat.broker_id)
        key = BrokerKey("g", heartbeat.broker_id)
        durable = content.durable.get(heartbeat.broker_id, DurableLogs())
        named = named_in_sync(content.group, key)
        record = compared(durable, record_of(key, heartbeat, lease_id), named)
        if present is not None:
            record = with_resignation(present, record)
        expects: dict[Key, int] = {
            key: 0 if present is None else present.revision,
            GROUP: 0 if content.group is None else content.group.revision,
        }
        puts: tuple[Stored, ...] = (record,)
        group = with_replica(content.group or ReplicaSet("g"), heartbeat.broker_id)
        if group != content.group:
            puts = (record, group)

        def written(result: tuple[bool, Content] | None) -> None:
            if result is None:
                self._finish(session)
                return
            succeeded, after = result
            if not succeeded:
                self._claim(session, heartbeat, attempt + 1)
                return
            if present is not None and present.lease_id != lease_id:
                former = present.lease_id
                self._ask(lambda server: server.revoke(former), lambda result: None)
            session.registered = after.brokers[heartbeat.broker_id]
            self._world.note("%s registered %s", self.place, session.registered)
            self._renewed(session, heartbeat, after.group)

        self._ask(lambda server: server.transaction(expects, puts), written)

    def _may_claim(
        self,
        session: Session,
        heartbeat: Heartbeat,
        present: BrokerRecord | None,
        group: ReplicaSet | None,
    ) -> bool:
        """Another instance's key may be taken only with proof that it has ended."""
        if present is None or present.instance == heartbeat.instance:
            return True
        if session.registered is not None:
            return False  # it was registered, and another instance followed it
        is_proven = heartbeat.predecessor == present.instance
        is_master = group is not None and (
            (group.master_id, group.master_instance) == (present.key.broker_id, present.instance)
        )
        return is_proven or not is_master

    def _renewed(
        self, session: Session, heartbeat: Heartbeat, group: ReplicaSet | None = None
    ) -> None:
        session.renewed_sequence = max(session.renewed_sequence, heartbeat.sequence)
        self._hear_positions(session)
        session.is_busy = False
        self._tell(session, group or self._group)

    def _finish(self, session: Session) -> None:
        session.is_busy = False
        self._tell(session, self._group)

    def _tell(self, session: Session, group: ReplicaSet | None, *, is_news: bool = False) -> None:
        if session.is_over:
            return
        known = session.group
        if group is None or (known is not None and group.revision <= known.revision):
            if is_news:
                return
            group = known
        session.group = group
        directive = Directive(session.renewed_sequence, self._world.settings.lease_ms, group)
        session.stream.send(self, self._world.on_directive, directive)

    # ------------------------------------------------------------------------------ in-sync set

    def alter(
        self,
        source: Place,
        master: tuple[int, str],
        epoch: int,
        in_sync: tuple[InSyncReplica, ...],
        expected_revision: int,
    ) -> None:
        """A master's request; the answer is the record, a refusal, or nothing."""
        world = self._world

        def answer(outcome: ReplicaSet | str) -> None:
            world.network.post(self.place, source, world.on_altered, epoch, outcome)

        def has_read(content: Content | None) -> None:
            if content is None or content.group is None:
                return
            group = content.group
            if group.revision != expected_revision:
                answer(group)
                return
            try:
                changed = alter_in_sync_set(group, master=master, epoch=epoch, in_sync=in_sync)
            except AerobeeError as error:
                answer(type(error).__name__)
                return
            expects: dict[Key, int] = {GROUP: expected_revision}
            self._ask(lambda server: server.transaction(expects, (changed,)), written)

        def written(result: tuple[bool, Content] | None) -> None:
            if result is not None and result[1].group is not None:
                answer(result[1].group)

        self._ask(lambda server: server.read(), has_read)
