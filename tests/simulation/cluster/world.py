"""A simulated cluster: machines, their processes, and the messages between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial

from aerobee.broker.groups.queue_leases import GroupQueue, Lease
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import LogState
from aerobee.broker.replication.master_term import ReplicaName, TermPolicy
from aerobee.broker.replication.replica_folder import (
    PreviousRun,
    ReplicaIdentity,
    next_run,
)
from aerobee.broker.replication.state_file import FoundLog
from aerobee.nameserver.stored import InSyncReplica, ReplicaSet
from tests.simulation.cluster.broker import DISK_POLL_S, Broker
from tests.simulation.cluster.checks import Checks
from tests.simulation.cluster.clients import Producer, Send
from tests.simulation.cluster.derived import Snapshot
from tests.simulation.cluster.etcd_server import Content, EtcdServer, EtcdState, Key, Stored
from tests.simulation.cluster.groups import Groups, Joining
from tests.simulation.cluster.heartbeats import Directive
from tests.simulation.cluster.kernel import Kernel, Place, Process
from tests.simulation.cluster.log import Folder, QueueId
from tests.simulation.cluster.master import Frame, Hello
from tests.simulation.cluster.members import GroupMember
from tests.simulation.cluster.nameserver import Nameserver
from tests.simulation.cluster.network import Network, Stream
from tests.simulation.cluster.transaction_clients import ask as ask_about
from tests.simulation.cluster.variant import Variant

Trace = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Settings:
    """One cluster's configuration."""

    sync_master: bool = True
    sync_flush: bool = False
    unclean_election: bool = False
    lease_ms: int = 2_000
    tick_s: float = 0.25
    flush_ticks: int = 2
    idle_s: float = 1.5
    send_timeout_s: float = 1.0
    policy: TermPolicy = field(default_factory=lambda: TermPolicy(in_sync_lag_s=1.0))


class World:
    def __init__(
        self,
        chance: random.Random,
        settings: Settings,
        variant: Variant,
        trace: Trace | None,
        *,
        waiting_chance: random.Random | None = None,
        has_pops: bool = False,
        has_transactions: bool = False,
    ) -> None:
        """`waiting_chance` decides how messages wait and fail here, or are consumed by POP if
        `has_pops`, or belong to transactions if `has_transactions`; None: there are none."""
        self.chance = chance
        self.settings = settings
        self.variant = variant
        self._trace = trace
        self._waiting_chance = waiting_chance
        self.has_waiting = waiting_chance is not None
        self.has_pops = has_pops
        self.has_transactions = has_transactions
        self.set_back_ms = 0
        """The latest time that a machine's clock showed before it was set back."""
        self.kernel = Kernel()
        self.network = Network(self.kernel, chance)
        self.checks = Checks(self)
        self.etcd_state = EtcdState()
        self._places = 0
        self._messages = 0
        self._slow_disk = chance.choice((1.0, 1.0, 10.0, 100.0, 100.0))
        self.folders: dict[int, Folder] = {}
        self.broker_places: dict[int, Place] = {}
        self.control = Process(self.new_place("control"))
        """The place of the scenario's own events."""
        self.control.place.process = self.control
        self.etcd_place = self.new_place("etcd")
        self.nameserver_places: list[Place] = []
        self.members: list[GroupMember] = []
        self.producer_of_transactions: Place | None = None
        self.full_share = 0.0
        """The share of copies that find the disk full."""
        self.has_old_copies = False
        """Some folder was replaced by an old copy of it."""

    @property
    def waiting_chance(self) -> random.Random:
        """Decides what happens to waiting messages."""
        assert self._waiting_chance is not None, "this world has none"
        return self._waiting_chance

    def new_place(self, name: str) -> Place:
        rate = 1.0 + self.chance.choice((-0.005, 0.0, 0.005))
        place = Place(self._places, name, rate=rate, skew_s=self.chance.random() * 1_000)
        self._places += 1
        return place

    def note(self, text: str, *values: object) -> None:
        if self._trace is not None:
            self._trace(f"{self.kernel.now_s:8.3f} {text % values if values else text}")

    @property
    def is_traced(self) -> bool:
        return self._trace is not None

    # ------------------------------------------------------------------------------ who runs

    def start_etcd(self) -> None:
        self.etcd_place.process = EtcdServer(self, self.etcd_place, self.etcd_state)

    def add_nameserver(self) -> Place:
        place = self.new_place(f"nameserver{len(self.nameserver_places)}")
        self.nameserver_places.append(place)
        self.start_nameserver(place)
        return place

    def start_nameserver(self, place: Place) -> None:
        place.process = nameserver = Nameserver(self, place)
        assert nameserver.runs

    def add_replica(self, broker_id: int) -> None:
        place = self.new_place(f"replica{broker_id}")
        self.broker_places[broker_id] = place
        self.folders[broker_id] = Folder(broker_id)
        self.start_broker(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Open the replica's folder, in whatever state it is."""
        folder, chance = self.folders[broker_id], self.chance
        place = self.broker_places[broker_id]
        if folder.hangs:
            self._open_later(place, broker_id, DISK_POLL_S)
            return
        place.opens_at = 0.0
        log = folder.log
        log.synced_end = log.end
        found = FoundLog(end=log.end, is_clean=folder.is_closed, boot_id=f"boot{folder.boots}")
        identity = ReplicaIdentity(
            broker_id=broker_id, has_nameservers=True, is_sync_flush=self.settings.sync_flush
        )
        previous = PreviousRun(folder.state, is_certain=True)
        opened = next_run(identity, previous, folder.history, found, chance)
        if folder.state is not None and not self.variant.renews_incarnation:
            kept = replace(opened.state, incarnation=folder.state.incarnation)
            opened = replace(opened, state=kept)
        has_lost, folder.has_lost_power = folder.has_lost_power, False
        folder.is_old_copy = (
            folder.is_old_copy
            and previous.state is not None
            and opened.state.incarnation == previous.state.incarnation
        )
        folder.is_closed = False
        folder.state, folder.history = opened.state, opened.history
        if opened.is_alone and has_lost:
            self.checks.lost_alone(folder)
        place.process = Broker(self, place, folder, opened)

    def reopen(
        self,
        broker: Broker,
        *,
        cut_end: int | None = None,
        is_cut_unclean: bool = False,
        is_incomplete: bool = False,
        begin_at: int | None = None,
        queue_bases: dict[QueueId, int] | None = None,
    ) -> None:
        """End the instance, change the folder, and reopen it as a new one."""
        if not broker.runs:
            return
        if broker.master is not None:
            broker.master.end()
        folder = broker.folder
        if folder.hangs:
            # It is still registered, but no longer acts or follows.
            broker.retires()
            again = partial(
                self.reopen,
                cut_end=cut_end,
                is_cut_unclean=is_cut_unclean,
                is_incomplete=is_incomplete,
                begin_at=begin_at,
                queue_bases=queue_bases,
            )
            self.kernel.after(DISK_POLL_S, broker, again)
            return
        broker.save()
        self.end_process(broker.place)
        if cut_end is not None:
            self.checks.cut(folder, cut_end)
            folder.log.cut(cut_end)
        folder.close()
        if is_cut_unclean:
            name = f"{folder.opened_state.incarnation}-cut"
            folder.state = replace(folder.opened_state, incarnation=name)
        if is_incomplete:
            folder.state = replace(
                folder.opened_state, is_incomplete=True, replicas=frozenset(), closed_end=None
            )
        if begin_at is not None:
            name = f"{self.chance.getrandbits(32):x}"
            folder.state = replace(folder.opened_state, incarnation=name, epoch=0, closed_end=None)
            folder.history = EpochHistory()
            folder.log.begin_at(begin_at)
            folder.forget_timers()
            folder.verified_end = begin_at
            folder.queue_bases = queue_bases or {}
            folder.snapshot = Snapshot.of_nothing(begin_at)
        self._open_later(broker.place, folder.broker_id, self.chance.choice((0.01, 0.05, 0.3)))

    def empty_folder(self, name: ReplicaName) -> None:
        """What the refusal tells an operator to do: the folder is moved away, and the replica
        starts with an empty one."""
        folder, place = self.folders[name.broker_id], self.broker_places[name.broker_id]

        def act(control: Process) -> None:
            is_same = folder.opened_state.incarnation == name.incarnation
            if is_same and self.folders[name.broker_id] is folder:
                self.note("an operator empties the folder of %s", place)
                self.end_process(place)
                self.folders[name.broker_id] = Folder(name.broker_id)
                self.start_broker(name.broker_id)

        self.kernel.push(self.kernel.now_s, self.control.place, None, act)

    def _open_later(self, place: Place, broker_id: int, delay_s: float) -> None:
        def open_again(control: Process) -> None:
            if place.process is None and place.opens_at == opens_at:
                self.start_broker(broker_id)

        place.opens_at = opens_at = self.kernel.now_s + delay_s
        self.kernel.push(opens_at, self.control.place, None, open_again)

    def end_process(self, place: Place, *, is_heard: bool = True) -> None:
        """It is gone; its peers are told, unless the machine is gone too."""
        process = place.process
        place.process = None
        place.opens_at = 0.0
        if process is None:
            return
        if isinstance(process, Broker) and process.waiting is not None:
            process.waiting.loop.end()
        for stream in process.streams:
            if is_heard:
                stream.cut(self.network.delay_s(), self.network.delay_s())
            else:
                stream.is_cut = True

    def any_nameserver(self) -> Nameserver | None:
        place = self.nameserver_places[self.chance.randrange(len(self.nameserver_places))]
        process = place.process
        return process if isinstance(process, Nameserver) else None

    # ------------------------------------------------------------------------------ durations

    def flush_s(self) -> float:
        return 0.002 * self._slow_disk * (0.5 + self.chance.random())

    def write_s(self) -> float:
        """The time to write a small file."""
        return 0.005 * self._slow_disk * (0.5 + self.chance.random())

    def next_message_id(self) -> int:
        self._messages += 1
        return self._messages

    # ------------------------------------------------------------------------------ messages

    def on_directive(self, broker: Process, stream: Stream, directive: Directive) -> None:
        assert isinstance(broker, Broker)
        broker.on_directive(stream, directive)

    def on_watch_snapshot(self, server: Process, stream: Stream, content: Content) -> None:
        assert isinstance(server, Nameserver)
        server.watch_snapshot(stream, content)

    def on_watch_event(
        self, server: Process, stream: Stream, key: Key, value: Stored | None, revision: int
    ) -> None:
        assert isinstance(server, Nameserver)
        server.watch_event(stream, key, value, revision)

    def alter(
        self,
        broker: Broker,
        master: tuple[int, str],
        epoch: int,
        in_sync: tuple[InSyncReplica, ...],
        expected_revision: int,
    ) -> None:
        place = self.nameserver_places[self.chance.randrange(len(self.nameserver_places))]
        self.network.post(
            broker.place,
            place,
            Nameserver.alter,
            broker.place,
            master,
            epoch,
            in_sync,
            expected_revision,
        )

    def on_altered(self, broker: Process, epoch: int, outcome: ReplicaSet | str) -> None:
        assert isinstance(broker, Broker)
        broker.altered(epoch, outcome)

    def on_hello(self, broker: Process, stream: Stream, hello: Hello) -> None:
        assert isinstance(broker, Broker)
        if broker.master is None:
            stream.close(broker)
        else:
            broker.master.on_hello(stream, hello)

    def on_agreement(
        self,
        broker: Process,
        stream: Stream,
        master: LogState,
        unclean: Collection[int],
        queue_bases: dict[QueueId, int],
    ) -> None:
        assert isinstance(broker, Broker)
        if broker.slave is not None and broker.slave.stream is stream:
            broker.slave.on_agreement(master, unclean, queue_bases)

    def on_frame(self, broker: Process, stream: Stream, frame: Frame) -> None:
        assert isinstance(broker, Broker)
        if broker.slave is not None and broker.slave.stream is stream:
            broker.slave.on_frame(frame)

    def on_ack(self, broker: Process, stream: Stream, epoch: int, stored_end: int) -> None:
        assert isinstance(broker, Broker)
        if broker.master is not None:
            broker.master.on_ack(stream, epoch, stored_end)

    def on_send(self, broker: Process, send: Send) -> None:
        assert isinstance(broker, Broker)
        refusal = "NOT_MASTER" if broker.master is None else broker.master.take(send)
        if refusal:
            self.answer(broker, send, refusal, -1)

    def answer(self, broker: Broker, send: Send, status: str, start: int) -> None:
        self.network.post(broker.place, send.source, Producer.answered, send.attempt, status, start)

    # ------------------------------------------------------------------------------ groups

    def _groups(self, broker: Process, stream: Stream) -> Groups | None:
        assert isinstance(broker, Broker)
        if broker.master is None:
            stream.close(broker)
            return None
        return broker.master.groups

    def on_join(self, broker: Process, stream: Stream, joining: Joining) -> None:
        if groups := self._groups(broker, stream):
            groups.join(stream, joining)

    def on_member_heartbeat(self, broker: Process, stream: Stream, sequence: int) -> None:
        if groups := self._groups(broker, stream):
            groups.heartbeat(stream, sequence)

    def ask_producer(self, broker: Broker, number: int) -> bool:
        """Ask about a transaction; False: no producer is connected."""
        if self.producer_of_transactions is None or self.waiting_chance.random() < 0.1:
            return False
        self.network.post(broker.place, self.producer_of_transactions, ask_about, number)
        return True

    def on_acquire(self, broker: Process, stream: Stream, key: GroupQueue) -> None:
        if groups := self._groups(broker, stream):
            groups.acquire(stream, key)

    def on_release(self, broker: Process, stream: Stream, key: GroupQueue, epoch: int) -> None:
        if groups := self._groups(broker, stream):
            groups.release(stream, key, epoch)

    def on_commit(
        self, broker: Process, stream: Stream, key: GroupQueue, epoch: int, offset: int
    ) -> None:
        if groups := self._groups(broker, stream):
            groups.commit(stream, key, epoch, offset)

    def on_joined(
        self, member: Process, stream: Stream, sequence: int, confirmed: tuple[Lease, ...]
    ) -> None:
        assert isinstance(member, GroupMember)
        member.joined(stream, sequence, confirmed)

    def on_heartbeat_ack(self, member: Process, stream: Stream, sequence: int) -> None:
        assert isinstance(member, GroupMember)
        member.heartbeat_acked(stream, sequence)

    def on_granted(self, member: Process, stream: Stream, lease: Lease, offset: int) -> None:
        assert isinstance(member, GroupMember)
        member.granted(stream, lease, offset)

    def on_revoked(self, member: Process, stream: Stream, lease: Lease) -> None:
        assert isinstance(member, GroupMember)
        member.revoked(stream, lease)

    def on_committed(
        self,
        member: Process,
        stream: Stream,
        key: GroupQueue,
        epoch: int,
        offset: int,
        is_done: bool,
    ) -> None:
        assert isinstance(member, GroupMember)
        member.committed(stream, key, epoch, offset, is_done)
