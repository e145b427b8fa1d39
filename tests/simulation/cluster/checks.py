"""Invariants, checked at the moment they could break.

The confirmed log is kept here: every record that a master ever confirmed, at its offset. It only
grows, except after a lossy election: no replica of the in-sync set was intact, which happens only
if all of them lost power with asynchronous flush, or the operator allowed it. Then it ends where
the new master's log does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aerobee.broker.pop.entries import POP_JOURNAL_TOPIC
from aerobee.broker.transactions.intents import TRANSACTION_JOURNAL_TOPIC
from aerobee.nameserver.stored import BrokerRecord, ReplicaSet
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.transaction_records import ASIDE_TOPIC, OP_TOPIC
from tests.simulation import campaign
from tests.simulation.cluster.log import Folder, Record
from tests.simulation.cluster.offset_checks import OffsetChecks
from tests.simulation.cluster.pop_checks import PopChecks
from tests.simulation.cluster.transacting import SAGAS
from tests.simulation.cluster.transaction_checks import TransactionChecks
from tests.simulation.cluster.waiting_checks import WaitingChecks
from tests.simulation.judge import Judge, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker
    from tests.simulation.cluster.derived import Message
    from tests.simulation.cluster.master import Hello
    from tests.simulation.cluster.world import World

JUDGE = Judge("I1")
_OF_NONE_THAT_WAITS = (
    POP_JOURNAL_TOPIC,
    TRANSACTION_JOURNAL_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ASIDE_TOPIC,
    SAGAS,
)


@dataclass(slots=True)
class Figures(campaign.Figures):
    steps: int = 0
    virtual_s: float = 0.0
    faults: int = 0
    epochs: int = 0
    lossy_elections: int = 0
    emptied: int = 0
    records: int = 0
    acknowledged: int = 0
    reads: int = 0
    commits: int = 0
    grants: int = 0
    deletions: int = 0
    waited: int = 0
    came: int = 0
    rolled: int = 0
    sent_back: int = 0
    dead_letters: int = 0
    deliveries: int = 0
    errands: int = 0
    pop_dead_letters: int = 0
    halves: int = 0
    committed: int = 0
    checks: int = 0
    set_aside: int = 0

    def __str__(self) -> str:
        return (
            f"{self.runs} runs of {self.virtual_s:.0f} virtual seconds, {self.steps} steps, "
            f"{self.faults} faults, {self.epochs} epochs ({self.lossy_elections} lossy), "
            f"{self.emptied} folders emptied, {self.records} records, "
            f"{self.acknowledged} acknowledged, {self.reads} reads, {self.commits} commits, "
            f"{self.grants} leases, {self.deletions} deletions; "
            f"{self.waited} messages waited, {self.came} came, {self.rolled} were rolled, "
            f"{self.sent_back} sent back, {self.dead_letters} dead letters; "
            f"{self.deliveries} deliveries by POP, {self.errands} acknowledged, "
            f"{self.pop_dead_letters} given up; {self.halves} half messages, "
            f"{self.committed} committed, {self.checks} checks, {self.set_aside} set aside"
        )


class Checks:
    """Its methods raise Violation."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.figures = Figures()
        self.starts: list[int] = []
        self.records: list[Record] = []
        self.end = 0
        self.acknowledged_at: dict[int, int] = {}
        """Message id -> its acknowledged offset."""
        self._stored: dict[tuple[int, int], int] = {}
        """A producer's number -> the offset of its confirmed record."""
        self.offsets = OffsetChecks(world)
        self.waiting = WaitingChecks(self.figures)
        self.pops = PopChecks(world)
        self.transactions = TransactionChecks(world)
        self._acting: dict[int, str] = {}
        """Epoch -> the instance that acted under it."""
        self._ends: list[tuple[float, int]] = []
        self._loss_is_due = False
        self._lacks_origins = False
        """No more is known of messages that wait, fail or are received by POP."""
        self.lossy_epoch = 0
        """The newest epoch before which something may have been lost."""

    # ------------------------------------------------------------------------------ the record

    def group_changed(
        self,
        former: ReplicaSet | None,
        group: ReplicaSet,
        brokers: Mapping[int, BrokerRecord],
    ) -> None:
        """etcd has a new record of the group."""
        if former is not None:
            if group.epoch < former.epoch:
                raise Violation(f"I2: epoch {group.epoch} follows epoch {former.epoch}")
            is_same_master = (group.master_id, group.master_instance) == (
                former.master_id,
                former.master_instance,
            )
            if group.epoch == former.epoch and not is_same_master:
                raise Violation(f"I2: epoch {group.epoch} has two masters")
            if group.epoch > former.epoch:
                self._elected(former, group, brokers)
        self._check_in_sync(group)

    def _elected(
        self, former: ReplicaSet, group: ReplicaSet, brokers: Mapping[int, BrokerRecord]
    ) -> None:
        self.figures.epochs += 1
        if not former.in_sync:
            return
        is_clean = any(
            name.broker_id == group.master_id
            and brokers[name.broker_id].incarnation == name.incarnation
            for name in former.in_sync
        )
        if is_clean:
            if group.epoch in group.unclean_epochs:
                raise Violation(f"I1: the clean election of epoch {group.epoch} counts as unclean")
            return
        settings = self._world.settings
        may_lose = not settings.sync_flush or self._world.has_old_copies
        all_lost = may_lose and all(
            name.broker_id in brokers and brokers[name.broker_id].incarnation != name.incarnation
            for name in former.in_sync
        )
        if not all_lost and not settings.unclean_election:
            raise Violation(
                f"I1: epoch {group.epoch} began with replica {group.master_id}, in sync were "
                f"{former.in_sync}"
            )
        self.figures.lossy_elections += 1
        self._loss_is_due = True
        self.lossy_epoch = group.epoch

    def _check_in_sync(self, group: ReplicaSet) -> None:
        """Every intact replica of the set has everything that was confirmed."""
        if self._loss_is_due or not self.records:
            return
        for name in group.in_sync:
            folder = self._world.folders[name.broker_id]
            state = folder.state
            is_same = state is not None and state.incarnation == name.incarnation
            if not is_same or not self._is_intact(folder):
                continue
            log = folder.log
            end = log.synced_end if self._world.settings.sync_flush else log.end
            last = self.starts[-1]
            has_last = last < log.begin or log.record_at(last) is self.records[-1]
            if end < self.end or not has_last:
                raise Violation(
                    f"I1: replica {name.broker_id} is in sync and has {end} bytes, "
                    f"{self.end} are confirmed"
                )

    def _is_intact(self, folder: Folder) -> bool:
        if folder.is_old_copy:
            return False
        return self._world.settings.sync_flush or not folder.has_lost_power

    # ------------------------------------------------------------------------------ masters

    def _check_promoted(self, broker: Broker) -> None:
        """A replica acts under an epoch for the first time: it has everything confirmed."""
        folder = broker.folder
        if self._loss_is_due and broker.epoch >= self.lossy_epoch:
            self._loss_is_due = False
            self._lose(folder)
            self.offsets.forget_leases()
            if broker.confirmed_end > self.end:
                # For an epoch that an earlier lossy election had skipped.
                self.confirmed(broker)
            return
        if folder.log.end < self.end:
            raise Violation(
                f"I1: {broker.instance} is master of epoch {broker.epoch} with {folder.log.end} "
                f"bytes, {self.end} were confirmed"
            )
        self._verify(folder, self.end, "I1")

    def lost_alone(self, folder: Folder) -> None:
        """The only replica has lost power, and leads again at once."""
        if not self._world.settings.sync_flush:
            self._lose(folder)
            self.lossy_epoch = folder.history.latest_epoch

    def check_acts(self, broker: Broker, what: str) -> None:
        """I2: a replica that acts as master is etcd's master at this instant."""
        epoch, instance = broker.epoch, broker.instance
        group = self._world.etcd_state.group
        if broker.mastership.is_alone:
            # No other was ever master, or can be elected.
            own_id = broker.folder.broker_id
            if group is None or group.master_id in (-1, own_id):
                return
            is_master = False
        else:
            is_master = group is not None and (group.epoch, group.master_instance) == (
                epoch,
                instance,
            )
        if not is_master:
            raise Violation(f"I2: {instance} {what} under epoch {epoch}, etcd has {group}")
        acting = self._acting.get(epoch)
        if acting is None:
            self._acting[epoch] = instance
            self._check_promoted(broker)
        elif acting != instance:
            raise Violation(f"I2: {instance} {what} under epoch {epoch} of {acting}")

    def confirmed(self, broker: Broker) -> None:
        """A master's confirmed end has risen."""
        self.check_acts(broker, "confirms")
        end, log = broker.confirmed_end, broker.folder.log
        if end > log.end:
            raise Violation(f"I3: {broker.instance} confirms {end} of {log.end} bytes")
        self._verify(broker.folder, min(end, self.end), "I3")
        if end <= self.end:
            return
        index = log.index(self.end)
        while self.end < end:
            record = log.records[index]
            self._note_stored(record, log.starts[index])
            self.starts.append(log.starts[index])
            self.records.append(record)
            self.end = log.starts[index] + record.size
            index += 1
        if self.end != end:
            raise Violation(f"I3: the confirmed end {end} lies within a record")
        broker.folder.verified_end = end
        self._ends.append((self._world.kernel.now_s, end))
        group = self._world.etcd_state.group
        if group is not None and not broker.mastership.is_alone:
            self._check_in_sync(group)

    def _note_stored(self, record: Record, start: int) -> None:
        """I1: every message is confirmed once."""
        self._judge_alone(record)
        if record.kind == "message":
            message = record.data
            number = message.producer_id, message.sequence
            JUDGE.once(self._stored, number, message)
            self._stored[number] = start

    def acknowledged(self, broker: Broker, start: int, message: Message) -> None:
        """A producer is told that its message is stored."""
        self.check_acts(broker, "acknowledges")
        self.figures.acknowledged += 1
        if not self._world.settings.sync_master:
            return
        record = self.record_at(start)
        JUDGE.keeps(record is not None and record.data == message, message)
        former = self.acknowledged_at.setdefault(message.message_id, start)
        if former != start:
            raise Violation(f"I1: {message} is acknowledged at {former} and {start}")

    # ------------------------------------------------------------------------------ slaves

    def slave_confirmed(self, broker: Broker) -> None:
        """A slave has learned of a higher confirmed end."""
        if broker.epoch >= self.lossy_epoch:
            if broker.confirmed_end > self.end:
                raise Violation(
                    f"I3: {broker.instance} takes {broker.confirmed_end} for confirmed, "
                    f"{self.end} are"
                )
            self._verify(broker.folder, broker.confirmed_end, "I3")

    def cut(self, folder: Folder, end: int) -> None:
        """A replica is about to cut its log."""
        if end < folder.verified_end:
            if folder.verified_end > self.end or self._loss_is_due:
                folder.verified_end = end
            else:
                raise Violation(
                    f"I5: replica {folder.broker_id} cuts from {end} on, "
                    f"{folder.verified_end} were confirmed"
                )

    def read(self, broker: Broker, end: int) -> None:
        """A consumer reads up to `end`."""
        self.figures.reads += 1
        if broker.epoch < self.lossy_epoch or self._loss_is_due:
            return
        if end > self.end:
            raise Violation(f"I5: {broker.instance} shows {end} bytes, {self.end} are confirmed")
        self._verify(broker.folder, end, "I5")

    def diverged(self, master: Broker, hello: Hello, error: Exception) -> None:
        """A slave waits for an operator, who may empty its folder if that loses nothing beyond what
        the unclean election already lost."""
        why_not = self._why_not_emptied(master, hello)
        if why_not:
            raise Violation(f"{master.instance} refuses {hello}, {why_not}: {error}")
        self.figures.emptied += 1

    def _why_not_emptied(self, master: Broker, hello: Hello) -> str:
        group = self._world.etcd_state.group
        if group is None:
            return "and there is no record of the group"
        newest = hello.state.epochs.up_to(hello.state.end).latest_epoch
        if not any(newest < epoch <= master.epoch for epoch in group.unclean_epochs):
            return f"and no unclean epoch came between {newest} and {master.epoch}"
        if hello.name in {(one.broker_id, one.incarnation) for one in group.in_sync}:
            return f"which is in sync in {group}"
        self.check_acts(master, "refuses a slave")
        if self._loss_is_due or master.folder.log.end < self.end:
            return f"and lacks some of the {self.end} bytes that are confirmed"
        self._verify(master.folder, self.end, "I1")
        return ""

    # ------------------------------------------------------------------------------ the log

    def end_before(self, seconds: float) -> int:
        """How far the confirmed log went this long ago."""
        index = bisect_right(self._ends, (self._world.kernel.now_s - seconds, 1 << 60))
        return self._ends[index - 1][1] if index else 0

    def record_at(self, start: int) -> Record | None:
        index = bisect_left(self.starts, start)
        if index < len(self.starts) and self.starts[index] == start:
            return self.records[index]
        return None

    def _verify(self, folder: Folder, end: int, promise: str) -> None:
        """The log equals the confirmed one up to `end`."""
        log = folder.log
        position = max(folder.verified_end, log.begin)
        if position >= end:
            return
        mine, index = log.index(position), bisect_left(self.starts, position)
        while position < end:
            record = self.records[index]
            if (
                mine >= len(log.records)
                or log.records[mine] is not record
                or log.starts[mine] != self.starts[index]
            ):
                raise Violation(
                    f"{promise}: replica {folder.broker_id} differs at {position} from what is "
                    f"confirmed: {record}"
                )
            position = self.starts[index] + record.size
            index += 1
            mine += 1
        folder.verified_end = position

    def _lose(self, folder: Folder) -> None:
        """After a lossy election: the new master's log is the confirmed one."""
        log = folder.log
        first = index = bisect_left(self.starts, log.begin)
        mine = log.index(log.begin)
        while (
            index < len(self.starts)
            and mine < len(log.records)
            and self.records[index] is log.records[mine]
            and self.starts[index] == log.starts[mine]
        ):
            index += 1
            mine += 1
        if index == first:
            # It has nothing of it: its log may begin within a former record, and if it begins late,
            # the origins of its messages were never seen.
            self.end = log.begin
            self._lacks_origins |= log.begin > 0
        elif index < len(self.starts):
            self.end = self.starts[index]
        del self.starts[index:], self.records[index:]
        for message_id, start in list(self.acknowledged_at.items()):
            if start >= self.end:
                del self.acknowledged_at[message_id]
        for number, start in list(self._stored.items()):
            if start >= self.end:
                del self._stored[number]
        self.offsets.forget()
        before = self.transactions
        self._judge_anew()
        self.transactions.forget_removed(folder.queue_bases, before)
        for one in self._world.folders.values():
            one.verified_end = min(one.verified_end, self.end)

    def missing(self, master: Broker) -> str:
        """What waits, fails or is received by POP and is not done yet; empty when all is done."""
        if self._lacks_origins:
            return ""
        parts = self.pops, self.transactions
        return self.waiting.missing() or next(
            filter(None, (one.missing(master) for one in parts)), ""
        )

    def _judge_anew(self) -> None:
        """Of what is left, everything comes once; what members were told may be lost, too."""
        figures, self.figures = self.figures, Figures()
        self.waiting = WaitingChecks(self.figures)
        self.pops = PopChecks(self._world, self.pops)
        self.transactions = TransactionChecks(self._world, self.transactions.asked)
        for record in self.records:
            self._judge_alone(record)
        self.waiting.figures = self.figures = figures

    def _judge_alone(self, record: Record) -> None:
        """For what waits, fails, is received by POP or belongs to a transaction."""
        place = record.queue_id
        if self._lacks_origins:
            return
        if isinstance(place, tuple):
            self.pops.confirmed(place, record)
            self.transactions.confirmed(place, record)
            if place[0] not in _OF_NONE_THAT_WAITS:
                self.waiting.confirmed(place, record)
        elif record.kind == "journal":
            self.pops.offsets(record.data)
