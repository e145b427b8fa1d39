"""What must survive a broker's term so that leases stay exclusive: the record of queue leases.

Owns: what the record says about the run before this one. A run is one master's term; its number is
raised, confirmed and on disk before the first lease is granted, so epochs rise across restarts and
fail-overs. A planned end records who was a member, since when it was silent, and who held what; the
next run takes them over as if nothing had happened. If members that the ending run never met may
still believe that they hold queues, it also records for how long. After any other end only the
longest promised session is known: for this long some member may still believe that it holds a
queue.

The record is an entry of the offset journal, which all replicas have. config/queueLeases.json
repeats it for a folder without the journal; a checksum there keeps a flipped bit from lowering the
run number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import ceil
from typing import Any
from zlib import crc32

from aerobee.broker.groups.members import Member, Subscription
from aerobee.broker.groups.queue_leases import GroupQueue, Lease

LEASES_PATH = "config/queueLeases.json"
REJOIN_TIME_S = 3.0
"""Clients retry to connect at least every 2 s: by then every live one has rejoined."""
RUNS_OF_AN_EPOCH = 1_024
"""A run number and a grant's number fit into 63 bits for two million epochs."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The content of the file and of the journal entry."""

    run_number: int
    session_timeout_max_ms: int
    """The longest session granted in this run; 0 before the first."""
    is_clean: bool
    """It ended as planned, and all who may believe that they hold a queue are named here."""
    boot_id: str = ""
    """The boot id of the machine during the run; empty if unknown."""
    members: tuple[Member, ...] = ()
    """After a planned end. Their last heartbeats are relative to it: 0 or less."""
    leases: tuple[Lease, ...] = ()
    epoch: int = 0
    """The group's epoch in which the run took place."""
    broker_id: int = 0
    """Which replica was master."""
    unsure_ms: int = 0
    """If above 0, it ended as planned while others than those named here could still believe that
    they hold queues, for this much longer. Older versions see an end that was not planned."""

    @property
    def was_planned(self) -> bool:
        """Whether the run left its members and leases to the next."""
        return self.is_clean or self.unsure_ms > 0

    @property
    def grace_ms(self) -> int:
        """For how long after it some unknown member may still believe that it holds a queue."""
        if self.was_planned:
            return self.unsure_ms
        return self.session_timeout_max_ms

    def members_left(self, now_s: float) -> list[Member]:
        """The members for a run that begins now. Each keeps what was left of its session, so that
        planned ends in a row do not prolong a dead one's, and has time to come back."""
        return [
            replace(
                member,
                last_heartbeat_s=now_s
                + max(member.last_heartbeat_s, min(REJOIN_TIME_S - member.session_timeout_s, 0.0)),
            )
            for member in self.members
        ]

    def encode(self) -> bytes:
        document = self.as_object()
        return _text({**document, "crc32": _checksum(document)})

    def as_object(self) -> dict[str, object]:
        """The record as a JSON object."""
        return {
            "runNumber": self.run_number,
            "sessionTimeoutMaxMs": self.session_timeout_max_ms,
            "cleanStop": self.is_clean,
            "bootId": self.boot_id,
            "members": [_member_object(member) for member in self.members],
            "leases": [_lease_object(lease) for lease in self.leases],
            "epoch": self.epoch,
            "brokerId": self.broker_id,
            **({"unsureMs": self.unsure_ms} if self.unsure_ms else {}),
        }

    @classmethod
    def from_object(cls, document: Mapping[str, Any]) -> RunRecord:
        """Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            run_number=_whole(document["runNumber"]),
            session_timeout_max_ms=_whole(document["sessionTimeoutMaxMs"]),
            is_clean=document["cleanStop"] is True,
            boot_id=str(document.get("bootId", "")),
            members=tuple(_member(entry) for entry in document["members"]),
            leases=tuple(_lease(entry) for entry in document["leases"]),
            epoch=_whole(document.get("epoch", 0)),
            broker_id=_whole(document.get("brokerId", 0)),
            unsure_ms=_whole(document.get("unsureMs", 0)),
        )

    def parts(self, bytes_max: int) -> list[RunRecord]:
        """The record split into parts: all have the same head, each has some of the members and
        leases, about `bytes_max` of JSON or a single longer one."""
        members = _slices([_member_object(member) for member in self.members], bytes_max)
        leases = _slices([_lease_object(lease) for lease in self.leases], bytes_max)
        return [
            replace(self, members=self.members[some], leases=self.leases[others])
            for some, others in zip_longest(members, leases, fillvalue=slice(0))
        ] or [self]

    @classmethod
    def join(cls, parts: Sequence[RunRecord]) -> RunRecord:
        """The record made of these parts."""
        return replace(
            parts[0],
            members=tuple(member for part in parts for member in part.members),
            leases=tuple(lease for part in parts for lease in part.leases),
        )

    @classmethod
    def decode(cls, data: bytes) -> RunRecord:
        """Raises ValueError for any other file content."""
        try:
            document = json.loads(data)
            if document.pop("crc32") != _checksum(document):
                raise ValueError("its checksum does not match")
            return cls.from_object(document)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a record of queue leases: {error}") from error


FIRST_RECORD = RunRecord(run_number=0, session_timeout_max_ms=0, is_clean=True)
"""The record of a new folder: no earlier run, nothing held."""


def next_run(
    previous: RunRecord,
    boot_id: str = "",
    *,
    epoch: int = 0,
    broker_id: int = 0,
    run_number_min: int = 0,
) -> RunRecord:
    """The record that this run begins with; it must be confirmed and on disk before a grant.

    After a planned end the members taken over may hold on for as long as they were promised; after
    any other, for the longest session promised to anyone. After a crash of this run both must
    still be known.

    The first number of an epoch is above all numbers of earlier epochs, even those whose records
    were lost in an unclean election, unless one had `RUNS_OF_AN_EPOCH` runs: leases that they left
    in a replica's table do not outrank the leases of this run.
    """
    return RunRecord(
        run_number=max(previous.run_number + 1, epoch * RUNS_OF_AN_EPOCH, run_number_min),
        session_timeout_max_ms=previous.session_timeout_max_ms,
        is_clean=False,
        boot_id=boot_id,
        epoch=epoch,
        broker_id=broker_id,
    )


def newest_record(journal: RunRecord | None, file: RunRecord) -> RunRecord:
    """What is known of the previous run. A power failure may have cut off the journal's end, and
    with it the record of a run that the file still has."""
    if journal is None:
        return file
    if (file.epoch, file.run_number) <= (journal.epoch, journal.run_number):
        return journal
    return replace(
        file,
        run_number=max(file.run_number, journal.run_number),
        session_timeout_max_ms=max(file.session_timeout_max_ms, journal.session_timeout_max_ms),
    )


def begun_record(previous: RunRecord, this_run: RunRecord) -> RunRecord:
    """The file's content from when the folder is opened until a run takes place: the new number,
    and all else from the run before, whose members may still be active."""
    return replace(
        this_run, boot_id=previous.boot_id, epoch=previous.epoch, broker_id=previous.broker_id
    )


def is_log_whole(previous: RunRecord, this_run: RunRecord) -> bool:
    """Whether the log has everything that members of the previous run have fetched.

    What another replica gave them was confirmed, and an elected replica has all of that. The end of
    our own log may have been lost in a power failure.
    """
    return previous.broker_id != this_run.broker_id or previous.boot_id == this_run.boot_id


def known_by_backup(backup: RunRecord, session_timeout_max_ms: int) -> RunRecord:
    """What is known of the previous run if only the record before its last one is readable.

    That run may be the backup's or the one after it, and it may have promised sessions of up to
    `session_timeout_max_ms`.
    """
    return replace(
        backup,
        run_number=backup.run_number + 1,
        session_timeout_max_ms=max(backup.session_timeout_max_ms, session_timeout_max_ms),
        is_clean=False,
        members=(),
        leases=(),
        unsure_ms=0,
    )


def planned_end(
    current: RunRecord,
    members: Sequence[Member],
    leases: Sequence[Lease],
    *,
    now_s: float,
    unsure_until_s: float | None = None,
) -> RunRecord:
    """The record of a planned end. For `unsure_until_s` see `QueueLeases`."""
    kept = tuple(
        replace(member, last_heartbeat_s=min(member.last_heartbeat_s - now_s, 0.0))
        for member in members
        if not member.broadcasting
    )
    longest_ms = max((round(member.session_timeout_s * 1_000) for member in kept), default=0)
    unsure_ms = 0 if unsure_until_s is None else max(ceil((unsure_until_s - now_s) * 1_000), 0)
    return replace(
        current,
        session_timeout_max_ms=current.session_timeout_max_ms if unsure_ms else longest_ms,
        is_clean=not unsure_ms,
        members=kept,
        leases=tuple(leases),
        unsure_ms=unsure_ms,
    )


def _slices(objects: Sequence[object], bytes_max: int) -> list[slice]:
    """Where to split so that no slice is longer as JSON, unless a single object is."""
    slices: list[slice] = []
    start = size = 0
    for index, each in enumerate(objects):
        length = len(json.dumps(each))
        if size and size + length > bytes_max:
            slices.append(slice(start, index))
            start, size = index, 0
        size += length
    if size:
        slices.append(slice(start, len(objects)))
    return slices


def _text(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, indent="\t").encode()


def _checksum(document: Mapping[str, object]) -> str:
    """Over the JSON text of `document` without the checksum itself."""
    return f"{crc32(_text(document)):08x}"


def _member_object(member: Member) -> dict[str, object]:
    silent_ms = round(-member.last_heartbeat_s * 1_000)
    return {
        "group": member.group,
        "clientId": member.client_id,
        "instance": member.instance,
        **({"user": member.user} if member.user else {}),
        "sessionTimeoutMs": round(member.session_timeout_s * 1_000),
        **({"silentMs": silent_ms} if silent_ms else {}),
        "subscriptions": [
            {"topic": one.topic, "expression": one.expression, "isSql": one.is_sql}
            for one in member.subscriptions
        ],
    }


def _member(entry: Mapping[str, Any]) -> Member:
    return Member(
        group=str(entry["group"]),
        client_id=str(entry["clientId"]),
        instance=str(entry["instance"]),
        subscriptions=tuple(
            Subscription(str(one["topic"]), str(one["expression"]), one["isSql"] is True)
            for one in entry["subscriptions"]
        ),
        broadcasting=False,
        session_timeout_s=_whole(entry["sessionTimeoutMs"]) / 1_000,
        last_heartbeat_s=-_whole(entry.get("silentMs", 0)) / 1_000,
        user=str(entry.get("user", "")),
    )


def _lease_object(lease: Lease) -> dict[str, object]:
    return {
        "group": lease.key.group,
        "topic": lease.key.topic,
        "queueId": lease.key.queue_id,
        "clientId": lease.client_id,
        "epoch": lease.epoch,
    }


def _lease(entry: Mapping[str, Any]) -> Lease:
    key = GroupQueue(str(entry["group"]), str(entry["topic"]), _whole(entry["queueId"]))
    return Lease(key, str(entry["clientId"]), _whole(entry["epoch"]))


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number")
    return value
