"""PURE: where a slave continues in its master's log, and which frames it accepts.

Both sides derive the start from both histories and must agree; then they compare the last bytes
before it, because every cluster counts its epochs from 1. The slave never cuts what it knows to be
confirmed, unless an unclean election, which the operator allowed, came in between.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from aerobee.broker.replication.epoch_history import EpochHistory, common_end
from aerobee.runtime.errors import ForeignCluster, ReplicaDiverged, ReplicationGap, StaleEpoch

COMPARED_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class LogState:
    """One replica's log."""

    begin: int
    end: int
    epochs: EpochHistory
    segment_bytes: int
    confirmed_end: int = 0
    """What it knows to be confirmed; every later master has that."""

    @property
    def is_empty(self) -> bool:
        return self.begin == self.end


@dataclass(frozen=True, slots=True)
class GoOn:
    """The slave's log is the beginning of the master's: send from `position`."""

    position: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The slave must cut its log at `end` and come back."""

    end: int
    is_unclean: bool = False
    """After an unclean election: confirmed bytes may be cut."""


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """The slave must empty its log, restart it at `position`, and come back."""

    position: int


Start = GoOn | Cut | BeginAnew


def where_to_start(
    slave: LogState, master: LogState, *, unclean_epochs: Collection[int] = ()
) -> Start:
    """What the slave has to do.

    Raises:
        ReplicaDiverged: the slave's log is not a part of the master's; only an operator may wipe
            it.
        StaleEpoch: the slave knows a newer epoch than the master.
    """
    if slave.segment_bytes != master.segment_bytes:
        raise ReplicaDiverged(
            f"the slave's log has segments of {slave.segment_bytes} bytes, the master's of "
            f"{master.segment_bytes}: set the same segment_bytes on all replicas of the broker "
            "group"
        )
    if slave.is_empty:
        at_begin = slave.begin == master.begin
        return GoOn(master.begin) if at_begin else BeginAnew(master.begin)
    mine = slave.epochs.up_to(slave.end)
    if not mine.entries:
        raise ReplicaDiverged(
            "the slave's folder holds messages that no master of this broker group wrote; move the "
            "folder away and start the slave with an empty one"
        )
    if mine.latest_epoch > master.epochs.latest_epoch:
        raise StaleEpoch(
            f"the slave's log has epoch {mine.latest_epoch}, the master's only "
            f"{master.epochs.latest_epoch}: the broker group's record in etcd was lost, or the "
            "folder is another broker group's; keep it, and start this replica with an empty one"
        )
    common = common_end(mine, slave.end, master.epochs, master.end)
    if common is None:
        raise ReplicaDiverged(
            "the slave's log and the master's have no epoch in common: the folder is another "
            "cluster's, or was used elsewhere; move it away and start the slave with an empty "
            "one"
        )
    is_unclean = common < slave.end and _is_unclean(mine, slave, master, common, unclean_epochs)
    if common < slave.confirmed_end and not is_unclean:
        raise ReplicaDiverged(
            f"the master lacks confirmed messages between {common} and {slave.confirmed_end}: it "
            "must not be master; stop it and check the broker group's record before anything "
            "is written"
        )
    if common < master.begin or common < slave.begin:
        return BeginAnew(master.begin)
    return GoOn(common) if common == slave.end else Cut(common, is_unclean)


def compared_bytes(slave: LogState, master: LogState, start: Start) -> int:
    """How many bytes before `start` must be equal in both logs; otherwise they have only epoch
    numbers in common. 0 if they share no bytes.

    They are within one segment: bytes after the blank record at a segment's end are not copied.
    """
    if isinstance(start, BeginAnew):
        return 0
    end = start.end if isinstance(start, Cut) else start.position
    segment_begin = (end - 1) // slave.segment_bytes * slave.segment_bytes
    begin = max(slave.begin, master.begin, segment_begin, end - COMPARED_BYTES_MAX)
    return max(0, end - begin)


def _is_unclean(
    mine: EpochHistory,
    slave: LogState,
    master: LogState,
    common: int,
    unclean_epochs: Collection[int],
) -> bool:
    """Whether an unclean election followed: only then may the cut include confirmed bytes."""
    since = mine.epoch_at(max(common, slave.begin))
    return any(since < epoch <= master.epochs.latest_epoch for epoch in unclean_epochs)


@dataclass(frozen=True, slots=True)
class Sender:
    """The identity of a frame's sender."""

    cluster: str
    broker_name: str
    epoch: int


def check_sender(expected: Sender, sender: Sender) -> None:
    """Raises ForeignCluster or StaleEpoch unless the frame belongs to this stream."""
    if (sender.cluster, sender.broker_name) != (expected.cluster, expected.broker_name):
        raise ForeignCluster(
            f"this is {expected.broker_name} of cluster {expected.cluster}, the frame is of "
            f"{sender.broker_name} of cluster {sender.cluster}: check the replicas' addresses"
        )
    if sender.epoch != expected.epoch:
        raise StaleEpoch(
            f"the frame is of epoch {sender.epoch}, the stream of epoch {expected.epoch}"
        )


def check_bytes(received_end: int, position: int) -> None:
    """Raises ReplicationGap unless bytes at `position` directly follow what the slave has."""
    if position != received_end:
        raise ReplicationGap(
            f"bytes at {position} do not follow the log's end at {received_end}; joining again"
        )


def check_ack(stored_end: int, acknowledged_end: int, sent_end: int) -> None:
    """Raises ReplicationGap for an acknowledgement that goes back, or exceeds what was sent."""
    if not acknowledged_end <= stored_end <= sent_end:
        raise ReplicationGap(
            f"an acknowledgement of {stored_end} must be between {acknowledged_end} and {sent_end}"
        )
