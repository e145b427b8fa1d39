"""A broker process's shell: its life from the start to the loss of its role.

The decisions are the real ones: how a start interprets the folder, whether to lead or to follow,
lease, term, histories, where to start. A process is one instance; a demotion ends it, and the same
folder is reopened as another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from aerobee.broker.groups.run_record import begun_record, next_run
from aerobee.broker.replication.epoch_history import EpochHistory, EpochStart
from aerobee.broker.replication.joining import LogState
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.broker.replication.mastership import Follow, Lead, StepDown
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.domain.broker_condition import BrokerCondition
from aerobee.nameserver.stored import ReplicaSet
from tests.simulation.cluster.derived import Derived
from tests.simulation.cluster.heartbeats import Directive, Heartbeat
from tests.simulation.cluster.kernel import Place, Process
from tests.simulation.cluster.log import Folder, Record
from tests.simulation.cluster.master import MasterPart
from tests.simulation.cluster.nameserver import Nameserver
from tests.simulation.cluster.network import Stream
from tests.simulation.cluster.slave import SlavePart
from tests.simulation.cluster.waiting import Waiting

if TYPE_CHECKING:
    from aerobee.broker.replication.replica_folder import OpenedReplica
    from tests.simulation.cluster.world import World

SEGMENT_BYTES = 4_096
SNAPSHOT_TICKS = 12
HUNG_AFTER_S = 0.8
DISK_POLL_S = 0.05
SILENCE_S = 1.2
"""How long a nameserver may be silent before another one is asked."""


class Broker(Process):
    __slots__ = (
        "_asked_disk_s",
        "_directive_s",
        "_found_end",
        "_has_news",
        "_is_writing",
        "_predecessor",
        "_sequence",
        "_session",
        "confirmed_end",
        "derived",
        "folder",
        "history",
        "instance",
        "is_disk_hung",
        "is_flushing",
        "is_leaving",
        "is_stopping",
        "known_replicas",
        "master",
        "mastership",
        "opened_end",
        "previous_run",
        "run_number_min",
        "slave",
        "successor_id",
        "ticks",
        "unclean_epochs",
        "waiting",
        "world",
    )

    def __init__(self, world: World, place: Place, folder: Folder, opened: OpenedReplica) -> None:
        super().__init__(place)
        self.world = world
        self.folder = folder
        self.derived = Derived(folder)
        self.instance = opened.state.instance
        self.history = opened.history
        self._predecessor = opened.predecessor
        self.mastership = world.variant.mastership(
            opened.own, self.instance, is_alone=opened.is_alone
        )
        self.previous_run = previous = folder.lease_file
        this_run = next_run(previous)
        self.run_number_min = this_run.run_number
        folder.lease_file = begun_record(previous, this_run)
        self.opened_end = 0 if opened.is_alone else folder.log.end
        self._found_end = opened.opened_end
        self.confirmed_end = folder.log.begin
        self.known_replicas: frozenset[int] = frozenset()
        self.unclean_epochs: tuple[int, ...] = ()
        self.successor_id = -1
        self.is_leaving = False
        """It takes no role any more; a master's term continues."""
        self.is_stopping = False
        self.is_flushing = False
        self.is_disk_hung = False
        """The disk has been unresponsive for so long that this replica leaves its group to
        others."""
        self._asked_disk_s: dict[object, float] = {}
        """Start times of the running flush and file writes."""
        self.ticks = 0
        self.master: MasterPart | None = None
        self.slave: SlavePart | None = None
        self._sequence = 0
        self._session: Stream | None = None
        self._directive_s = self.clock_s()
        self._is_writing = False
        self._has_news = False
        self.waiting = Waiting(self) if world.has_waiting else None
        world.note("%s opens as %s: %s, %s", place, opened.own, opened, folder.log)
        world.kernel.after(0.0, self, Broker.open)

    @property
    def name(self) -> ReplicaName:
        return self.mastership.own

    @property
    def epoch(self) -> int:
        """The epoch that it acts under, or else the newest in its log."""
        return self.history.latest_epoch if self.master is None else self.master.term.epoch

    @property
    def log_state(self) -> LogState:
        log = self.folder.log
        return LogState(log.begin, log.end, self.history, SEGMENT_BYTES, self.confirmed_end)

    @property
    def readable_end(self) -> int | None:
        """How far consumers may read here; None while unknown."""
        end = min(self.confirmed_end, self.folder.log.end)
        if self.world.variant.reads_unconfirmed:
            return self.folder.log.end
        return end if self.mastership.is_alone or self.confirmed_end >= self.opened_end else None

    def clock_s(self) -> float:
        return self.world.kernel.clock_s(self.place)

    def safe_end(self) -> int:
        """What this replica promises to keep, depending on the flush mode."""
        log = self.folder.log
        return log.synced_end if self.world.settings.sync_flush else log.end

    def may_act(self) -> bool:
        """Whether it may take, confirm and acknowledge anything as master now."""
        return self.mastership.may_act(self.clock_s())

    # ------------------------------------------------------------------------------ time

    def open(self) -> None:
        """The folder is open; a replica that is alone leads at once."""
        if self.mastership.is_alone:
            self._begin_term(self.history.latest_epoch, None)
        self.tick()

    def tick(self) -> None:
        settings = self.world.settings
        self.ticks += 1
        self._watch_disk()
        if self.ticks % 2:
            self.send_heartbeat()
        if self.master is not None:
            self.master.tick()
        elif self.slave is not None:
            self.slave.tick()
        else:
            self.look()
        if not settings.sync_flush and self.ticks % settings.flush_ticks == 0:
            self.flush()
        if self.ticks % SNAPSHOT_TICKS == 0:
            self.save()
        self.world.kernel.after(settings.tick_s, self, Broker.tick)

    def save(self) -> None:
        """Write snapshots that spare the next start the walk over the whole log."""
        self.derived.save(before_the_log=self.world.variant.saves_before_the_log)
        if self.waiting is not None:
            self.waiting.save()

    def appended(self, record: Record, start: int) -> None:
        """The log has grown by this record."""
        self.derived.appended(record, start + record.size)
        if self.waiting is not None:
            self.waiting.appended(record, start)

    def confirmed(self, end: int) -> None:
        """More of the log is confirmed."""
        self.confirmed_end = end
        if self.waiting is not None:
            self.waiting.on_confirmed()

    def flush(self) -> None:
        """Sync the log; what arrives during a sync waits for the next one."""
        log = self.folder.log
        if self.is_flushing or log.synced_end == log.end:
            return
        self.is_flushing = True
        asked = self._ask_disk()
        self.world.kernel.after(self.world.flush_s(), self, Broker._flushed, asked, log.end)

    def _flushed(self, asked: object, end: int) -> None:
        if self.folder.hangs:
            self.world.kernel.after(DISK_POLL_S, self, Broker._flushed, asked, end)
            return
        self.is_flushing = False
        del self._asked_disk_s[asked]
        log = self.folder.log
        log.synced_end = max(log.synced_end, end)
        self.derived.flushed()
        if self.waiting is not None:
            self.waiting.on_flushed()
        if self.master is not None:
            self.master.advance()
        elif self.slave is not None:
            self.slave.acknowledge()
        if self.world.settings.sync_flush:
            self.flush()

    # ------------------------------------------------------------------------------ hung disk

    def _ask_disk(self) -> object:
        asked = object()
        self._asked_disk_s[asked] = self.clock_s()
        return asked

    def _watch_disk(self) -> None:
        """As `DiskWatch` and `HungDisk` do, with their rules."""
        oldest_s = min(self._asked_disk_s.values(), default=float("inf"))
        is_waiting = self.clock_s() - oldest_s > HUNG_AFTER_S
        if is_waiting != self.is_disk_hung and (is_waiting or not self.folder.hangs):
            self.is_disk_hung = is_waiting
            self.world.note("%s: the disk hangs: %s", self.instance, is_waiting)
            self.send_heartbeat()
            self.look()
        if not is_waiting:
            return
        match self.mastership.decide():
            case Lead(epoch):
                self.mastership.decline(epoch)
                self.send_heartbeat()
                return
        master = self.master
        if master is None or not master.term.in_sync - {self.name}:
            return
        if self.mastership.has_resigned(self.epoch):
            return
        if not self.may_act():
            self.mastership.resign()
            self.send_heartbeat()
        else:
            master.leave_hung_disk()

    # ------------------------------------------------------------------------------ nameserver

    def send_heartbeat(self) -> None:
        now_s = self.clock_s()
        if self._session is not None and now_s - self._directive_s > SILENCE_S:
            self._session.close(self)
            self._session = None
        if self._session is None:
            nameserver = self.world.any_nameserver()
            if nameserver is None:
                return
            self._session = Stream(self.world.network, self, nameserver)
            self._directive_s = now_s
        self._sequence += 1
        log = self.folder.log
        heartbeat = Heartbeat(
            self._sequence,
            self.folder.broker_id,
            self.instance,
            self.name.incarnation,
            self._predecessor,
            self.history.up_to(log.end).latest_epoch,
            log.end,
            self.mastership.resigned_epoch or 0,
            self.successor_id,
            self.is_stopping,
            min(self.confirmed_end, log.synced_end),
            self._found_end,
            0 if self.master is None else self.master.term.epoch,
            self.confirmed_end,
            BrokerCondition.DISK_HUNG if self.is_disk_hung else BrokerCondition.WELL,
        )
        self.mastership.heartbeat_sent(self._sequence, now_s)
        self._session.send(self, Nameserver.on_heartbeat, heartbeat)

    def on_directive(self, stream: Stream, directive: Directive) -> None:
        if stream is not self._session:
            return
        self._directive_s = self.clock_s()
        if directive.is_refused:
            self.world.note("%s lacks what its log once had", self.instance)
            self.world.reopen(self, is_incomplete=True)
            return
        if directive.group is not None:
            self.hear(directive.group)
        if directive.renewed_sequence:
            self.mastership.renewed(directive.renewed_sequence, directive.lease_ms)
        if self.master is not None:
            self.master.advance()

    def hear(self, group: ReplicaSet) -> None:
        """News of the broker group's record, possibly not the newest."""
        known = self.mastership.replica_set
        if known is not None and known.revision >= group.revision:
            return
        if self.mastership.hear(_view(group)):
            self.unclean_epochs = group.unclean_epochs
            self.look()

    def heard_epoch(self, epoch: int) -> None:
        """Another replica knows `epoch`: if it is newer, the lease must be proven again."""
        if self.master is not None and epoch > self.epoch and not self.mastership.is_alone:
            self.world.note("%s hears of epoch %s", self.instance, epoch)
            self.mastership.doubt()
            self.send_heartbeat()

    def altered(self, epoch: int, outcome: ReplicaSet | str) -> None:
        """The answer to a proposal of the in-sync set: the record, or the reason of a refusal."""
        if isinstance(outcome, ReplicaSet):
            self.hear(outcome)
        elif self.master is not None and self.epoch == epoch:
            if outcome == "StaleEpoch":
                self.heard_epoch(epoch + 1)
            else:
                self.master.term.proposal_refused(self.clock_s())

    # ------------------------------------------------------------------------------ roles

    def look(self) -> None:
        """Do what is due, one step after another; each is durable before the next."""
        if self._is_writing:
            self._has_news = True
            return
        if self.is_leaving:
            return
        if self.is_disk_hung and self.master is None:
            if self.slave is not None:
                self.slave.end()
            return
        group = self.mastership.replica_set
        if group is not None:
            if group.replicas != self.folder.opened_state.replicas:
                self._write(Broker._replicas_noted, group.replicas)
                return
            self.known_replicas = group.replicas
        match self.mastership.decide():
            case Lead(epoch):
                self._lead(epoch)
            case Follow(master_id, epoch):
                self._follow(master_id, epoch)
            case StepDown(epoch):
                self.world.note("%s steps down: epoch %s began", self.instance, epoch)
                self.world.reopen(self)
            case _:
                if self.master is None and self.slave is not None:
                    self.slave.end()

    def _write(self, then: Callable[..., None], *values: object) -> None:
        self._is_writing = True
        asked = self._ask_disk()
        self.world.kernel.after(
            self.world.write_s(), self, Broker._write_ended, asked, then, *values
        )

    def _write_ended(self, asked: object, then: Callable[..., None], *values: object) -> None:
        if self.folder.hangs:
            again = Broker._write_ended
            self.world.kernel.after(DISK_POLL_S, self, again, asked, then, *values)
            return
        del self._asked_disk_s[asked]
        then(self, *values)

    def _written(self) -> None:
        self._is_writing = self._has_news = False
        self.look()

    def _replicas_noted(self, replicas: frozenset[int]) -> None:
        self.folder.state = replace(self.folder.opened_state, replicas=replicas)
        self._written()

    def _lead(self, epoch: int) -> None:
        if self.slave is not None:
            self.slave.end()
        end = self.folder.log.end
        kept = self.history.up_to(end)
        if epoch <= kept.latest_epoch:
            return
        history = EpochHistory((*kept.entries, EpochStart(epoch, end)))
        if self.world.variant.uses_epoch_first:
            self.history = history
            self._begin_term(epoch, self.mastership.replica_set)
            self.world.kernel.after(0.7, self, Broker._note_history, history)
        else:
            self._write(Broker._history_written, epoch, history)

    def _note_history(self, history: EpochHistory) -> None:
        self.folder.history = self.history = history
        self.folder.state = replace(self.folder.opened_state, epoch=history.latest_epoch)

    def _history_written(self, epoch: int, history: EpochHistory) -> None:
        if self.is_leaving:
            self.folder.history = history  # the write completes, and nobody acts on it
            return
        self._note_history(history)
        group = self.mastership.replica_set
        if self.mastership.decide() == Lead(epoch):
            self._begin_term(epoch, group)
        self._written()

    def adopt_history(self, history: EpochHistory, slave: SlavePart) -> None:
        """Make the master's epochs ours, before the first byte of them is stored."""
        self._write(Broker._history_adopted, history, slave)

    def _history_adopted(self, history: EpochHistory, slave: SlavePart) -> None:
        if self.is_leaving:
            self.folder.history = history
            return
        self._note_history(history)
        if self.slave is slave:
            slave.begin()
        self._written()

    def _begin_term(self, epoch: int, group: ReplicaSetView | None) -> None:
        if self.master is not None:
            self.master.end()
        self.master = MasterPart(self, epoch, group)
        self.mastership.lead(self.master.term)
        self.master.advance()

    def _follow(self, master_id: int, epoch: int) -> None:
        """Dial the master named in the broker group's record."""
        if self.slave is not None:
            if (self.slave.master_id, self.slave.epoch) == (master_id, epoch):
                return
            self.slave.end()
        process = self.world.broker_places[master_id].process
        if isinstance(process, Broker):
            self.slave = SlavePart(self, process, epoch)

    def leave(self, then: Callable[[], None]) -> None:
        """A clean stop: the groups' leases are left to the next run, then nothing more is
        acknowledged and the log is on disk."""
        if self.is_leaving:
            return
        self.is_leaving = True
        self.world.note("%s leaves", self.instance)
        if self.master is not None and self.master.acts:
            self.master.groups.record_clean_end(lambda: self._leave_now(then))
            self.world.kernel.after(0.5, self, Broker._leave_now, then)
        else:
            self._leave_now(then)

    def _leave_now(self, then: Callable[[], None]) -> None:
        if self.is_stopping:
            return
        if self.master is not None:
            self.master.end()
            self.master = None
            self.mastership.end_term()
        if self.slave is not None:
            self.slave.end()
        self.is_stopping = True
        self.send_heartbeat()
        self.folder.close()
        self.derived.flushed()
        self.save()
        self.world.kernel.after(0.05, self, lambda broker: then())

    def retires(self) -> None:
        """The folder must be reopened, and cannot be closed yet."""
        self.is_leaving = True
        if self.master is not None:
            self.master.end()
            self.master = None
            self.mastership.end_term()
        if self.slave is not None:
            self.slave.end()

    def stream_ended(self, stream: object) -> None:
        if stream is self._session:
            self._session = None
        elif self.slave is not None and stream is self.slave.stream:
            self.slave = None
        elif self.master is not None:
            self.master.stream_ended(stream)


def _view(group: ReplicaSet) -> ReplicaSetView:
    return ReplicaSetView(
        epoch=group.epoch,
        master_id=group.master_id,
        master_instance=group.master_instance,
        in_sync=frozenset(ReplicaName(one.broker_id, one.incarnation) for one in group.in_sync),
        replicas=frozenset(group.replicas),
        revision=group.revision,
    )
