"""Deliberately broken clusters: the simulation must detect each of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.offsets.entries import Entry
from aerobee.broker.offsets.sent_back import SentBack
from aerobee.broker.replication.joining import Cut, GoOn, LogState, Start
from aerobee.broker.replication.master_lease import LeaseMargin, MasterLease
from aerobee.broker.replication.master_term import InSyncSet, MasterTerm, ReplicaName
from aerobee.broker.replication.mastership import Mastership
from aerobee.nameserver.election import Election, LiveReplicas
from aerobee.nameserver.stored import InSyncReplica, ReplicaSet
from aerobee.store.engine.producers.producer_windows import ProducerName, ProducerWindows
from aerobee.store.engine.producers.window import NEW, AlreadyStored
from aerobee.store.format.delayed_records import TIMER_TOPIC
from tests.simulation.cluster.pop_mutants import (
    AnswersUnwritten,
    HandsOutUnwritten,
    OvertakesRetries,
    TakesStaleHandles,
)
from tests.simulation.cluster.variant import Variant


class _EverValidLease(MasterLease):
    def is_valid(self, now_s: float) -> bool:
        return self.end_s > float("-inf")


class NoFencing(Variant):
    """A master continues although its lease has ended."""

    def mastership(self, own: ReplicaName, instance: str, *, is_alone: bool) -> Mastership:
        mastership = super().mastership(own, instance, is_alone=is_alone)
        mastership.lease = _EverValidLease()
        return mastership


class _LateLease(MasterLease):
    """Believes that the lease begins when the renewal is received."""

    newest_s = 0.0

    def sent(self, sequence: int, now_s: float) -> None:
        super().sent(sequence, now_s)
        self.newest_s = now_s

    def renewed(self, sequence: int, lease_ms: int) -> None:
        self.end_s = max(self.end_s, self.newest_s + LeaseMargin().length_s(lease_ms))


class LeaseFromAnswer(Variant):
    """A lease counts from the newest heartbeat, not from the one that etcd has confirmed."""

    def mastership(self, own: ReplicaName, instance: str, *, is_alone: bool) -> Mastership:
        mastership = super().mastership(own, instance, is_alone=is_alone)
        mastership.lease = _LateLease()
        return mastership


class NoTruncation(Variant):
    """A slave that must cut its log continues where it ends."""

    def where_to_start(
        self, slave: LogState, master: LogState, *, unclean_epochs: Collection[int]
    ) -> Start:
        start = super().where_to_start(slave, master, unclean_epochs=unclean_epochs)
        if isinstance(start, Cut) and slave.end <= master.end:
            return GoOn(slave.end)
        return start


class OtherEpochCounts(Variant):
    """What a replica has of another epoch counts like an acknowledgement."""

    counts_hello = True


class _ShrinkingTerm(MasterTerm):
    @property
    def counted(self) -> InSyncSet:
        return self._in_sync if self._proposed is None else self._proposed


class ShrinksFirst(Variant):
    """A replica stops counting as soon as its removal is proposed."""

    def term(self, **arguments: Any) -> MasterTerm:
        return _ShrinkingTerm(**arguments)


class _ExpandingTerm(MasterTerm):
    @property
    def counted(self) -> InSyncSet:
        return self._in_sync


class ExpandsUncounted(Variant):
    """A new member of the in-sync set counts only once the change is known to be made."""

    def term(self, **arguments: Any) -> MasterTerm:
        return _ExpandingTerm(**arguments)


class ElectsAnybody(Variant):
    """A replica that is not in sync may be elected."""

    def elect(
        self, group: ReplicaSet, live: LiveReplicas, *, allow_unclean: bool, confirmed_end: int
    ) -> Election | None:
        names = [InSyncReplica(one.key.broker_id, one.incarnation) for one in live.values()]
        everybody = replace(group, in_sync=tuple(sorted({*group.in_sync, *names})))
        return super().elect(everybody, live, allow_unclean=allow_unclean, confirmed_end=0)


class RecordsNoUncleanEpoch(Variant):
    """The record does not say that an election was unclean."""

    def elect(
        self, group: ReplicaSet, live: LiveReplicas, *, allow_unclean: bool, confirmed_end: int
    ) -> Election | None:
        election = super().elect(
            group, live, allow_unclean=allow_unclean, confirmed_end=confirmed_end
        )
        if election is None:
            return None
        clean = replace(election.replica_set, unclean_epochs=group.unclean_epochs)
        return replace(election, replica_set=clean)


class KeepsIncarnation(Variant):
    """A log that has lost bytes keeps its name."""

    renews_incarnation = False


class ReadsUnconfirmed(Variant):
    """Consumers see what is appended."""

    reads_unconfirmed = True


class UsesEpochFirst(Variant):
    """An epoch is used before it is in the epoch file."""

    uses_epoch_first = True


class AcknowledgesAlone(Variant):
    """SYNC_MASTER acknowledges what only the master has."""

    acknowledges_alone = True


class UnsyncedHello(Variant):
    """With synchronous flush a slave's hello names bytes that are not on its disk."""

    syncs_before_hello = False


class CommitsUnchecked(Variant):
    """Offsets are committed without checking who holds the queue's lease."""

    checks_lease = False


class NoGrace(Variant):
    """A new master grants queues at once."""

    waits_for_grace = False


class GroupsTooEarly(Variant):
    """A new master serves groups before it has applied the whole journal."""

    waits_for_journal = False


class AnswersUnconfirmed(Variant):
    """A commit is acknowledged when it is appended."""

    answers_confirmed = False


class DeletesUnderHolders(Variant):
    """An offset is deleted while members may still work under their leases."""

    waits_for_holders = False


class OldEnds(Variant):
    """The log end at a broker's registration counts as its present end."""

    hears_ends = False


class CopiesPass(Variant):
    """An old copy of a folder is accepted as the folder."""

    refuses_copies = False


class StoresTwice(Variant):
    """A producer's number is ignored."""

    def standing(
        self, windows: ProducerWindows, name: ProducerName, sequence: int
    ) -> AlreadyStored | None:
        return NEW


class LosesRolls(Variant):
    """A rolled message is done at its old place, and has no new one."""

    def appends_copy(self, topic: str) -> bool:
        return topic != TIMER_TOPIC


class RepeatsMoves(Variant):
    """A new master repeats the last one's copies without checking which of them are stored."""

    def copy_standing(
        self, windows: ProducerWindows, name: ProducerName, sequence: int
    ) -> AlreadyStored | None:
        return NEW


class JournalsNoAttempt(Variant):
    """Only the master knows that a message was sent back."""

    def offset_entries(self, entries: tuple[Entry | ImageEnd, ...]) -> tuple[Entry | ImageEnd, ...]:
        return tuple(entry for entry in entries if not isinstance(entry, SentBack))


class SavesBeforeTheLog(Variant):
    """After send-backs the offsets' snapshot does not wait for the log."""

    saves_before_the_log = True


class JournalsNoMove(Variant):
    """Only the master knows what was moved."""

    def timer_record(self, body: bytes) -> bytes:
        return b"[]" if b'"kind":"move"' in body else body


class TakesHalvesUnread(Variant):
    """A new master takes half messages before it knows which ones its log has."""

    knows_before_it_takes = False


class WritesNoEnd(Variant):
    """Only the master knows that a transaction has ended."""

    writes_ends = False


class AnswersEndsEarly(Variant):
    """An end is answered as soon as it is appended."""

    waits_for_ends = False


class FinishesNoCommit(Variant):
    """A new master does not complete what the last one began."""

    finishes_commits = False


class ForgetsWhatItFinished(Variant):
    """A new master lets others end a transaction that it has just completed."""

    knows_what_it_finished = False


class ChecksWhatEnded(Variant):
    """A check does not test whether the transaction has ended meanwhile."""

    checks_open_ones_only = False


class LosesWhatIsSetAside(Variant):
    """Messages set aside are not stored anywhere."""

    keeps_what_is_set_aside = False


MUTANTS: Mapping[str, type[Variant]] = MappingProxyType(
    {
        "no-fencing": NoFencing,
        "lease-from-answer": LeaseFromAnswer,
        "no-truncation": NoTruncation,
        "other-epoch-counts": OtherEpochCounts,
        "shrinks-first": ShrinksFirst,
        "expands-uncounted": ExpandsUncounted,
        "elects-anybody": ElectsAnybody,
        "unclean-unrecorded": RecordsNoUncleanEpoch,
        "keeps-incarnation": KeepsIncarnation,
        "reads-unconfirmed": ReadsUnconfirmed,
        "uses-epoch-first": UsesEpochFirst,
        "acknowledges-alone": AcknowledgesAlone,
        "unsynced-hello": UnsyncedHello,
        "commits-unchecked": CommitsUnchecked,
        "no-grace": NoGrace,
        "groups-too-early": GroupsTooEarly,
        "answers-unconfirmed": AnswersUnconfirmed,
        "stores-twice": StoresTwice,
        "copies-pass": CopiesPass,
        "old-ends": OldEnds,
        "deletes-under-holders": DeletesUnderHolders,
        "lost-roll": LosesRolls,
        "repeated-move": RepeatsMoves,
        "attempt-not-journalled": JournalsNoAttempt,
        "move-not-journalled": JournalsNoMove,
        "snapshot-before-log": SavesBeforeTheLog,
        "pop-answers-unwritten": AnswersUnwritten,
        "pop-hands-out-unwritten": HandsOutUnwritten,
        "pop-overtaken-retry": OvertakesRetries,
        "pop-stale-handle": TakesStaleHandles,
        "half-taken-unread": TakesHalvesUnread,
        "end-not-journalled": WritesNoEnd,
        "end-answered-early": AnswersEndsEarly,
        "commit-not-finished": FinishesNoCommit,
        "finished-commit-forgotten": ForgetsWhatItFinished,
        "check-of-what-ended": ChecksWhatEnded,
        "set-aside-lost": LosesWhatIsSetAside,
    }
)
