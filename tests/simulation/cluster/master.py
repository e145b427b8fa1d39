"""A master's part: appending, its slaves' streams, acknowledgements, the in-sync set."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker.replication.joining import GoOn, LogState, check_ack
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.nameserver.stored import InSyncReplica
from aerobee.runtime.errors import AerobeeError, NotEnoughReplicas, StaleEpoch
from aerobee.store.engine.producers.producer_windows import ProducerName
from tests.simulation.cluster.derived import TOPIC
from tests.simulation.cluster.groups import Groups
from tests.simulation.cluster.log import Record
from tests.simulation.cluster.network import Stream

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker
    from tests.simulation.cluster.clients import Send

WINDOW_BYTES = 2_000
RECORDS_PER_FRAME = 4
ASK_AGAIN_S = 0.7
HAND_OVER_S = 2.0
LATE_OTHERS_S = 0.1


class Hello(NamedTuple):
    """A slave's first message."""

    name: ReplicaName
    state: LogState
    epoch: int


class Frame(NamedTuple):
    """Log bytes (none: a heartbeat)."""

    epoch: int
    position: int
    records: tuple[Record, ...]
    confirmed_end: int
    log_end: int


class Waiting(NamedTuple):
    """A send that was appended and not yet acknowledged."""

    end: int
    start: int
    deadline_s: float
    send: Send


class Peer:
    """One slave's stream."""

    __slots__ = ("acknowledged_end", "heard_s", "name", "sent_end", "stream")

    def __init__(self, name: ReplicaName, stream: Stream, end: int, now_s: float) -> None:
        self.name = name
        self.stream = stream
        self.sent_end = end
        self.acknowledged_end = end
        self.heard_s = now_s


class MasterPart:
    """One term."""

    __slots__ = (
        "_asked_s",
        "_broker",
        "_pause_began_s",
        "_successor_id",
        "_waiting",
        "_world",
        "groups",
        "peers",
        "term",
    )

    def __init__(self, broker: Broker, epoch: int, group: ReplicaSetView | None) -> None:
        self._broker = broker
        self._world = broker.world
        log = broker.folder.log
        self.term = broker.world.variant.term(
            epoch=epoch,
            own=broker.name,
            in_sync=(broker.name,) if group is None else group.in_sync,
            revision=0 if group is None else group.revision,
            log_end=log.end,
            confirmed_end=log.end if group is None else broker.confirmed_end,
            policy=broker.world.settings.policy,
            now_s=broker.clock_s(),
        )
        self.peers: dict[int, Peer] = {}
        is_unclean = epoch in broker.unclean_epochs
        self.groups = Groups(broker, epoch, log.end, is_unclean=is_unclean)
        if broker.waiting is not None:
            broker.waiting.begin(epoch, is_unclean=is_unclean)
        self._waiting: list[Waiting] = []
        self._asked_s = 0.0
        self._successor_id = -1
        self._pause_began_s = 0.0

    @property
    def acts(self) -> bool:
        """Whether this master may take, confirm and acknowledge anything now."""
        broker = self._broker
        return broker.master is self and broker.may_act()

    @property
    def takes(self) -> bool:
        """Whether it appends anything now."""
        return self.acts and self._successor_id < 0 and not self._broker.is_disk_hung

    # ------------------------------------------------------------------------------ sends

    def take(self, send: Send) -> str:
        """Append a message; returns why not, or an empty string if an answer will follow."""
        if not self.takes:
            return "NOT_MASTER"
        try:
            self.term.check_enough()
        except NotEnoughReplicas:
            return "NOT_ENOUGH_REPLICAS"
        broker, now_s = self._broker, self._broker.clock_s()
        deadline_s = now_s + self._world.settings.send_timeout_s
        queue_id, message = send.queue_id, send.message
        name = ProducerName(TOPIC, queue_id, message.producer_id)
        standing = self._world.variant.standing(broker.derived.windows, name, message.sequence)
        if standing is None:
            return "OUT_OF_SEQUENCE"
        if standing.stored_count:
            self._take_again(send, standing.queue_offset, deadline_s)
            return ""
        offset = broker.derived.queue_ends.get(queue_id, 0)
        start = self.append(Record(send.size, "message", message, queue_id, offset))
        self._waiting.append(Waiting(broker.folder.log.end, start, deadline_s, send))
        self.appended()
        return ""

    def _take_again(self, send: Send, queue_offset: int, deadline_s: float) -> None:
        """The message is already in the log: acknowledge it with its place there."""
        log = self._broker.folder.log
        for index in range(len(log.records) - 1, -1, -1):
            record = log.records[index]
            if (record.queue_id, record.queue_offset) == (send.queue_id, queue_offset):
                start = log.starts[index]
                waiting = Waiting(start + record.size, start, deadline_s, send)
                insort(self._waiting, waiting, key=lambda one: one.end)
                self.advance()
                return
        self._world.answer(self._broker, send, "OK", -1)

    def append(self, record: Record) -> int:
        broker = self._broker
        start = broker.folder.log.append(record)
        broker.appended(record, start)
        self._world.checks.figures.records += 1
        return start

    def appended(self) -> None:
        """Disk and replicas work in parallel."""
        if self._world.settings.sync_flush:
            self._broker.flush()
        for peer in self.peers.values():
            self._pump(peer)
        self.advance()

    def advance(self) -> None:
        """Confirm and acknowledge what has become safe."""
        if not self.acts:
            return
        broker, checks = self._broker, self._world.checks
        safe_end = broker.safe_end()
        confirmed_end = self.term.confirm(safe_end)
        if confirmed_end > broker.confirmed_end:
            broker.confirmed(confirmed_end)
            checks.confirmed(broker)
        is_sync = self._world.settings.sync_master and not self._world.variant.acknowledges_alone
        end = confirmed_end if is_sync else safe_end
        while self._waiting and self._waiting[0].end <= end:
            waiting = self._waiting.pop(0)
            checks.acknowledged(broker, waiting.start, waiting.send.message)
            self._world.answer(broker, waiting.send, "OK", waiting.start)
        self.groups.look()
        if self._successor_id >= 0:
            self._go_on_with_hand_over()

    # ------------------------------------------------------------------------------ time

    def tick(self) -> None:
        broker, now_s = self._broker, self._broker.clock_s()
        self.advance()
        self.groups.tick()
        for waiting in [one for one in self._waiting if one.deadline_s <= now_s]:
            self._waiting.remove(waiting)
            self._world.answer(broker, waiting.send, "FLUSH_SLAVE_TIMEOUT", -1)
        for peer in list(self.peers.values()):
            if now_s - peer.heard_s > self._world.settings.idle_s:
                peer.stream.close(broker)
                self._drop(peer)
            elif broker.ticks % 2:
                peer.stream.send(broker, self._world.on_frame, self._frame(peer.sent_end, ()))
        if self._successor_id >= 0 and now_s - self._pause_began_s > HAND_OVER_S and self.acts:
            self._call_hand_over_off()
        self._propose(now_s)

    def _propose(self, now_s: float) -> None:
        if not self.acts or self._broker.mastership.is_alone:
            return
        broker = self._broker
        proposal = None
        if self.term.is_proposing:
            if now_s - self._asked_s > ASK_AGAIN_S:
                proposal = self.term.proposal_again()
        else:
            proposal = self.term.propose(broker.folder.log.end, now_s)
        if proposal is None:
            return
        self._asked_s = now_s
        names = tuple(InSyncReplica(*name) for name in sorted(proposal.in_sync))
        self._world.alter(
            broker,
            (broker.folder.broker_id, broker.instance),
            self.term.epoch,
            names,
            proposal.expected_revision,
        )

    # ------------------------------------------------------------------------------ slaves

    def on_hello(self, stream: Stream, hello: Hello) -> None:
        """A slave wants to follow."""
        broker = self._broker
        if self.acts:
            broker.heard_epoch(hello.epoch)
        is_known = hello.name.broker_id in broker.known_replicas
        if not self.acts or hello.epoch != self.term.epoch or not is_known:
            stream.close(broker)
            return
        former = self.peers.get(hello.name.broker_id)
        if former is not None:
            former.stream.close(broker)
            self._drop(former)
        mine = broker.log_state
        unclean = broker.unclean_epochs
        now_s = broker.clock_s()
        if self._world.variant.counts_hello:
            self.term.joined(hello.name, hello.state.end, broker.folder.log.end, now_s)
        try:
            start = self._world.variant.where_to_start(hello.state, mine, unclean_epochs=unclean)
        except StaleEpoch:
            stream.close(broker)
            return
        except AerobeeError as error:
            self._world.checks.diverged(broker, hello, error)
            self._world.empty_folder(hello.name)
            stream.close(broker)
            return
        bases = dict(broker.folder.queue_bases)
        stream.send(broker, self._world.on_agreement, mine, unclean, bases)
        if isinstance(start, GoOn):
            end = hello.state.end
            peer = Peer(hello.name, stream, start.position, now_s)
            self.peers[hello.name.broker_id] = peer
            self.term.joined(hello.name, end, broker.folder.log.end, now_s)
            self._pump(peer)
            self.advance()

    def on_ack(self, stream: Stream, epoch: int, stored_end: int) -> None:
        broker = self._broker
        for peer in self.peers.values():
            if peer.stream is stream:
                break
        else:
            return
        if epoch != self.term.epoch:
            return
        check_ack(stored_end, peer.acknowledged_end, peer.sent_end)
        now_s = broker.clock_s()
        peer.acknowledged_end, peer.heard_s = stored_end, now_s
        self.term.acknowledged(peer.name, stored_end, broker.folder.log.end, now_s)
        self._pump(peer)
        self.advance()

    def stream_ended(self, stream: object) -> None:
        for peer in self.peers.values():
            if peer.stream is stream:
                self._drop(peer)
                return
        self.groups.stream_ended(stream)

    def _drop(self, peer: Peer) -> None:
        del self.peers[peer.name.broker_id]
        self.term.left(peer.name)

    def _frame(self, position: int, records: tuple[Record, ...]) -> Frame:
        broker = self._broker
        return Frame(
            self.term.epoch, position, records, broker.confirmed_end, broker.folder.log.end
        )

    def _pump(self, peer: Peer) -> None:
        """Send what the window allows."""
        log = self._broker.folder.log
        while peer.sent_end < log.end and peer.sent_end - peer.acknowledged_end < WINDOW_BYTES:
            if log.record_at(peer.sent_end) is None:
                peer.stream.close(self._broker)
                self._drop(peer)
                return
            first = log.index(peer.sent_end)
            records = tuple(log.records[first : first + RECORDS_PER_FRAME])
            position = peer.sent_end
            peer.sent_end += sum(record.size for record in records)
            peer.stream.send(self._broker, self._world.on_frame, self._frame(position, records))

    def end(self) -> None:
        """Another term begins here, or none."""
        for peer in list(self.peers.values()):
            peer.stream.close(self._broker)
            self._drop(peer)
        self.groups.end()
        if self._broker.waiting is not None:
            self._broker.waiting.end()
        for waiting in self._waiting:
            self._world.answer(self._broker, waiting.send, "FLUSH_SLAVE_TIMEOUT", -1)
        self._waiting.clear()

    # ------------------------------------------------------------------------------ hand-over

    def hand_over(self, successor_id: int) -> None:
        """Take nothing more; resign when the successor has everything."""
        peer = self.peers.get(successor_id)
        if not self.acts or self._successor_id >= 0 or peer is None:
            return
        if peer.name in self.term.in_sync:
            self._successor_id = successor_id
            self._pause_began_s = self._broker.clock_s()
            self._world.note("%s hands over to replica %s", self._broker.instance, successor_id)
            self.groups.record_clean_end(lambda: None)
            if self._broker.waiting is not None:
                self._broker.waiting.leave()
            self.advance()

    def leave_hung_disk(self) -> None:
        """Hand over to the replica that has most; what a hand-over records is omitted."""
        if self._successor_id >= 0 or not self.acts:
            return
        able = [peer for peer in self.peers.values() if peer.name in self.term.in_sync]
        if able:
            furthest = max(able, key=lambda peer: (peer.acknowledged_end, peer.name))
            self._successor_id = furthest.name.broker_id
            self._pause_began_s = self._broker.clock_s()
            self.advance()

    def _call_hand_over_off(self) -> None:
        """Continue under the same epoch."""
        broker, epoch = self._broker, self.term.epoch
        self._successor_id = -1
        self.groups.end()
        is_unclean = epoch in broker.unclean_epochs
        self.groups = Groups(broker, epoch, broker.folder.log.end, is_unclean=is_unclean)
        if broker.waiting is not None:
            broker.waiting.resume()
        self.advance()

    def _go_on_with_hand_over(self) -> None:
        broker = self._broker
        peer = self.peers.get(self._successor_id)
        end = broker.folder.log.end
        if peer is None or peer.acknowledged_end < end:
            return
        waited_s = broker.clock_s() - self._pause_began_s
        if self.term.confirmed_end >= end or waited_s > LATE_OTHERS_S:
            broker.successor_id = self._successor_id
            broker.mastership.resign()
            broker.send_heartbeat()
