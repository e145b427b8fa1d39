"""Invariants of the groups' offsets and queue leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.groups.queue_leases import GroupQueue, Lease
from aerobee.broker.offsets.entries import OffsetEntry
from aerobee.broker.offsets.merge import ChangeKind
from tests.simulation.judge import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker
    from tests.simulation.cluster.world import World


class OffsetChecks:
    """Its methods raise Violation."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._floors: dict[GroupQueue, tuple[int, int]] = {}
        """Queue -> the largest offset acknowledged since the last reset, and the number of the
        journal record with it."""
        self._granted: dict[tuple[GroupQueue, int], str] = {}
        self._granted_under: dict[tuple[GroupQueue, int], int] = {}
        """Queue and lease -> the epoch of the first master that granted or confirmed it."""
        self._newest: dict[GroupQueue, int] = {}
        self._deleted: dict[GroupQueue, tuple[int, int]] = {}
        """Queue -> the record that deleted the offset, and the newest lease granted by then."""
        self._has_lost = False

    def forget(self) -> None:
        """After a lossy election the next master's knowledge is what holds."""
        self._floors.clear()
        self._deleted.clear()

    def forget_leases(self) -> None:
        """A master that never learned of the newest runs may reuse their numbers."""
        self._newest.clear()
        self._granted.clear()

    def begin(self, broker: Broker) -> None:
        """A master's groups begin: it knows every acknowledged offset."""
        self._world.checks.check_acts(broker, "serves groups")
        for key, (offset, _) in self._floors.items():
            standing = broker.derived.journal.standing(key)
            if standing is None or standing.offset < offset:
                raise Violation(
                    f"I4: {broker.instance} begins with {standing} of {key}, {offset} was committed"
                )

    def told(self, broker: Broker, key: GroupQueue, offset: int) -> None:
        """A member is told where to continue."""
        floor = self._floors.get(key)
        if floor is not None and offset < floor[0]:
            raise Violation(f"I4: {broker.instance} tells {offset} of {key}, {floor} was committed")

    def applied(self, broker: Broker, number: int, entry: OffsetEntry) -> None:
        """A record takes effect on the master."""
        key, change = entry.key, entry.change
        floor = self._floors.get(key)
        if change.kind is ChangeKind.RESET:
            if floor is None or number > floor[1]:
                self._floors[key] = change.offset, number
            return
        if floor is not None and number > floor[1]:
            standing = broker.derived.journal.standing(key)
            if standing is None or standing.offset < floor[0]:
                raise Violation(f"I4: {entry} leaves {standing}, {floor} was committed")

    def removed(self, key: GroupQueue, number: int) -> None:
        """A deletion takes effect on a master: the group starts over on the queue."""
        floor = self._floors.get(key)
        if floor is not None and number > floor[1]:
            del self._floors[key]
        if number > self._deleted.get(key, (-1, 0))[0]:
            self._deleted[key] = number, self._newest.get(key, 0)

    def commit_taken(self, broker: Broker, key: GroupQueue, epoch: int) -> None:
        """A master takes a commit: it must come from the queue's owner."""
        self._world.checks.check_acts(broker, "takes a commit")
        if epoch < self._newest.get(key, 0):
            raise Violation(
                f"I6: {broker.instance} takes a commit of {key} under lease {epoch}, "
                f"{self._newest[key]} was granted"
            )
        deleted = self._deleted.get(key)
        if deleted is not None and 0 < epoch <= deleted[1]:
            raise Violation(
                f"I6: {broker.instance} takes a commit of {key} under lease {epoch}, which was "
                f"granted before record {deleted[0]} deleted the offset"
            )

    def committed(self, broker: Broker, key: GroupQueue, offset: int, number: int) -> None:
        """A member is told that its commit is in effect."""
        self._world.checks.check_acts(broker, "acknowledges a commit")
        self._world.checks.figures.commits += 1
        standing = broker.derived.journal.standing(key)
        if standing is None or standing.offset < offset:
            raise Violation(f"I4: {offset} of {key} is acknowledged, {standing} stands")
        floor = self._floors.get(key)
        if floor is None or floor[0] < offset:
            self._floors[key] = offset, number

    def shown(self, broker: Broker, lease: Lease) -> None:
        """A presented lease is confirmed. That changes nothing for a member that has given it up
        since: a join may have been under way for long."""
        for member in self._world.members:
            if member.client_id == lease.client_id and member.believes(lease.key) == lease.epoch:
                self.granted(broker, lease)

    def granted(self, broker: Broker, lease: Lease) -> None:
        """A member owns a queue: no other does, or believes that it does."""
        self._world.checks.check_acts(broker, "grants a queue")
        self._world.checks.figures.grants += 1
        key, client_id, epoch = lease.key, lease.client_id, lease.epoch
        self._granted_under.setdefault((key, epoch), broker.epoch)
        owner = self._granted.setdefault((key, epoch), client_id)
        if owner != client_id:
            raise Violation(f"I6: {lease} was granted to {owner}")
        if epoch < self._newest.get(key, 0):
            raise Violation(f"I6: {lease} is older than {self._newest[key]}")
        self._newest[key] = epoch
        for member in self._world.members:
            if member.client_id == client_id or (held := member.believes(key)) is None:
                continue
            if not self._is_forgotten(key, held):
                raise Violation(f"I6: {lease} is granted while {member.client_id} has {held}")

    def _is_forgotten(self, key: GroupQueue, lease: int) -> bool:
        """Whether an election has skipped every replica that knew of the lease: the record of a
        membership may be among what was lost."""
        group = self._world.etcd_state.group
        unclean = () if group is None else group.unclean_epochs
        return any(epoch > self._granted_under[key, lease] for epoch in unclean)
