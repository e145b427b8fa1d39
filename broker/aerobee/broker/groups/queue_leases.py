"""Who may consume each queue of each group, and under which epoch.

Owns: the leases of this broker's queues and the members that wait for one. Pure: time is passed in;
sessions are managed elsewhere (their end arrives as `drop_member`).
Invariants: a queue of a group has at most one holder; the epoch of every new lease is higher than
all that this broker ever granted, because its upper half counts the broker's starts and its lower
half the grants since; waiting members are served in the order of their requests. Before the first
run, that is on a slave, there are no requests.

After an unclean stop nobody knows who holds what. Until `grace_end_s` a queue is therefore given
only to a member that presents the lease it held under an earlier run; all others wait, so that a
member still working on the queue has time to notice the end of its session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

COUNTER_BITS = 32


class GroupQueue(NamedTuple):
    """A queue of this broker as one group sees it."""

    group: str
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Lease:
    """One member's right to consume one queue."""

    key: GroupQueue
    client_id: str
    epoch: int


class QueueLeases:
    """Leases and requests by queue."""

    __slots__ = (
        "_believes_earlier_runs",
        "_blocks",
        "_by_client",
        "_counter",
        "_grace_end_s",
        "_held",
        "_is_granting",
        "_of_group",
        "_run_number",
        "_wishes",
    )

    def __init__(
        self,
        *,
        run_number: int,
        grace_end_s: float | None = None,
        believes_earlier_runs: bool = True,
    ) -> None:
        """`run_number` counts the broker's starts; `grace_end_s` (monotonic) only after an unclean
        stop. Unless `believes_earlier_runs`, no lease from before this run that a member presents
        is confirmed."""
        self._believes_earlier_runs = believes_earlier_runs
        self._run_number = run_number
        self._grace_end_s = grace_end_s
        self._counter = 0
        self._is_granting = True
        self._held: dict[GroupQueue, Lease] = {}
        self._of_group: dict[str, dict[GroupQueue, Lease]] = {}
        """The same by group, so that one group's need no search."""
        # Revoked queues: the member that may not know yet, and until when it may be unaware.
        self._blocks: dict[GroupQueue, tuple[str, float]] = {}
        # Insertion order is the order of requests.
        self._wishes: dict[GroupQueue, dict[str, None]] = {}
        # Every queue that a client holds or requests, so that its end needs no search.
        self._by_client: dict[tuple[str, str], set[GroupQueue]] = {}

    def begin_run(
        self, run_number: int, *, grace_end_s: float | None, believes_earlier_runs: bool
    ) -> None:
        """Reset: a run of this broker begins, before anybody has asked for a queue."""
        has_any = self._held or self._wishes or self._blocks
        assert not has_any, "no run takes over another's leases"
        assert run_number > self._run_number, "runs rise"
        self._run_number = run_number
        self._grace_end_s = grace_end_s
        self._believes_earlier_runs = believes_earlier_runs
        self._counter = 0
        self._is_granting = True

    def stop_granting(self) -> None:
        """Nobody gets a queue until the next run: the present state is being handed over."""
        self._is_granting = False

    def clear(self) -> None:
        """The run is over: nothing is held or awaited here."""
        self._held.clear()
        self._of_group.clear()
        self._blocks.clear()
        self._wishes.clear()
        self._by_client.clear()
        self._grace_end_s = None

    @property
    def latest_epoch(self) -> int:
        """No lease ever granted on any queue of this broker group has a higher epoch."""
        return (self._run_number << COUNTER_BITS) + self._counter

    def __repr__(self) -> str:
        return f"QueueLeases(run={self._run_number}, held={len(self._held)})"

    @property
    def grace_end_s(self) -> float | None:
        """When free queues may be granted to anyone; None: they already are."""
        return self._grace_end_s

    def acquire(self, key: GroupQueue, client_id: str) -> Lease | None:
        """The lease if the queue is free (or already the caller's), else None: the request waits.

        A request may also free the queue for a member that has waited longer: check the lease's
        client.
        """
        held = self._held.get(key)
        if held is not None and held.client_id == client_id:
            return held
        self._lift_block(key, client_id)
        self._wishes.setdefault(key, {})[client_id] = None
        self._by_client.setdefault((key.group, client_id), set()).add(key)
        return self._grant_next(key)

    def release(
        self, key: GroupQueue, client_id: str, epoch: int
    ) -> tuple[Lease | None, list[Lease]]:
        """Give a queue back, or withdraw the request for it.

        Returns the lease that ended, if the caller held it under this epoch, and who has it now.
        """
        self._withdraw(key, client_id)
        if self._lift_block(key, client_id):
            granted = self._grant_next(key)
            return None, [] if granted is None else [granted]
        held = self._held.get(key)
        if held is None or held.client_id != client_id or held.epoch != epoch:
            return None, []
        self._end(held)
        granted = self._grant_next(key)
        return held, [] if granted is None else [granted]

    def drop_member(self, group: str, client_id: str) -> tuple[list[Lease], list[Lease]]:
        """End all leases and requests of a member; returns (ended, granted to others)."""
        keys = sorted(self._by_client.get((group, client_id), ()))
        ended: list[Lease] = []
        for key in keys:
            self._withdraw(key, client_id)
            held = self._held.get(key)
            if held is not None and held.client_id == client_id:
                self._end(held)
                ended.append(held)
        free = [lease.key for lease in ended]
        for key in [key for key, (owner, _) in self._blocks.items() if owner == client_id]:
            if key.group == group:
                del self._blocks[key]
                free.append(key)
        return ended, self._grant_all(free)

    def revoke(self, key: GroupQueue, believes_until_s: float) -> Lease | None:
        """Take a queue away from its holder; returns the lease that ended.

        Nobody else gets the queue before the former holder shows that it knows, by a request or a
        release, or before `believes_until_s`: until then it may still work on it.
        """
        held = self._held.get(key)
        if held is None:
            return None
        self._end(held)
        self._blocks[key] = held.client_id, believes_until_s
        return held

    def prolong(self, end_s: float) -> None:
        """Former holders may be unaware until `end_s`: neither blocks nor the grace end earlier."""
        for key, (client_id, until_s) in self._blocks.items():
            self._blocks[key] = client_id, max(until_s, end_s)
        if self._grace_end_s is not None:
            self._grace_end_s = max(self._grace_end_s, end_s)

    def end_blocks(self, now_s: float) -> list[Lease]:
        """End the blocks of former holders whose time is up; returns the leases granted."""
        free = [key for key, (_, until_s) in self._blocks.items() if until_s <= now_s]
        for key in free:
            del self._blocks[key]
        return self._grant_all(free)

    def believed_until_s(self, group: str, concerns: Callable[[GroupQueue], bool]) -> float | None:
        """Until when a former holder may believe that it still holds one of these queues of the
        group; None: none can."""
        times = [
            until_s
            for key, (_, until_s) in self._blocks.items()
            if key.group == group and concerns(key)
        ]
        if self._grace_end_s is not None:
            times.append(self._grace_end_s)
        return max(times, default=None)

    @property
    def unsure_until_s(self) -> float | None:
        """Until when someone who is not the holder may believe that it holds a queue; None: nobody
        may."""
        block_ends_s = [until_s for _, until_s in self._blocks.values()]
        if self._grace_end_s is not None:
            block_ends_s.append(self._grace_end_s)
        return max(block_ends_s, default=None)

    def next_block_end_s(self) -> float | None:
        """When `end_blocks` may next have something to do."""
        return min((until_s for _, until_s in self._blocks.values()), default=None)

    def _lift_block(self, key: GroupQueue, client_id: str) -> bool:
        block = self._blocks.get(key)
        if block is None or block[0] != client_id:
            return False
        del self._blocks[key]
        return True

    def resume(
        self,
        group: str,
        client_id: str,
        presented: Iterable[tuple[GroupQueue, int]],
        believes_until_s: float | None = None,
    ) -> tuple[list[Lease], list[Lease], list[Lease]]:
        """A member starts a new stream and presents the leases that it still holds.

        A lease that it held here and does not present ends: it does not know of it. Nobody else
        gets such a queue before `believes_until_s`, if given, unless the member requests or
        releases it: this may be an old stream of a member that has opened another since. Its
        requests are dropped; it will ask again.

        Returns (confirmed, ended, granted to others).
        """
        self.forget_wishes(group, client_id)
        shown = dict(presented)
        confirmed: list[Lease] = []
        ended: list[Lease] = []
        for key in sorted(self._by_client.get((group, client_id), ())):
            held = self._held.get(key)
            if held is not None and held.client_id == client_id and shown.get(key) != held.epoch:
                self._end(held)
                ended.append(held)
                if believes_until_s is not None:
                    self._blocks[key] = client_id, believes_until_s
        for key, epoch in shown.items():
            if key.group != group:
                continue
            held = self._held.get(key)
            if held is not None and held.client_id == client_id and held.epoch == epoch:
                confirmed.append(held)
            elif self._is_of_earlier_run(epoch) and (held is None or self._outranks(epoch, held)):
                if held is not None:
                    self._end(held)
                    ended.append(held)
                confirmed.append(self._install(Lease(key, client_id, epoch)))
        return confirmed, ended, self._grant_all(lease.key for lease in ended)

    def forget_wishes(self, group: str, client_id: str) -> None:
        """Drop all requests of a member; it keeps what it holds."""
        for key in sorted(self._by_client.get((group, client_id), ())):
            self._withdraw(key, client_id)

    def restore(self, lease: Lease) -> None:
        """Take over a lease that the previous run recorded at its clean stop.

        Raises:
            ValueError: the queue has a holder, or the epoch is not of an earlier run.
        """
        if lease.key in self._held or lease.epoch >> COUNTER_BITS >= self._run_number:
            raise ValueError(f"{lease} cannot be restored in run {self._run_number}")
        self._install(lease)

    def end_grace(self) -> list[Lease]:
        """From now on free queues go to waiting members; returns the leases granted."""
        self._grace_end_s = None
        return self._grant_all(list(self._wishes))

    def holder(self, key: GroupQueue) -> Lease | None:
        return self._held.get(key)

    def is_unclaimed(self, key: GroupQueue) -> bool:
        """Whether nobody holds the queue, waits for it, or may believe that it holds it."""
        return self._grace_end_s is None and not self.is_claimed(key)

    def is_claimed(self, key: GroupQueue) -> bool:
        """Whether somebody is known to hold the queue, to wait for it, or to possibly believe that
        it holds it."""
        return key in self._held or key in self._wishes or key in self._blocks

    def is_current(self, key: GroupQueue, epoch: int) -> bool:
        """Whether this is the epoch of the queue's current lease."""
        held = self._held.get(key)
        return held is not None and held.epoch == epoch

    def wish_count(self, group: str, client_id: str) -> int:
        """Queues that the client holds or waits for."""
        return len(self._by_client.get((group, client_id), ()))

    def held_by(self, group: str, client_id: str) -> int:
        """How many queues the client holds."""
        keys = self._by_client.get((group, client_id), ())
        return sum(
            (lease := self._held.get(key)) is not None and lease.client_id == client_id
            for key in keys
        )

    def held(self, group: str | None = None) -> list[Lease]:
        """All leases, or one group's, sorted by queue."""
        held = self._held if group is None else self._of_group.get(group, {})
        return [held[key] for key in sorted(held)]

    @property
    def held_count(self) -> int:
        return len(self._held)

    def all_held(self) -> list[Lease]:
        """All leases, unordered: fast even if there are many."""
        return list(self._held.values())

    def _is_of_earlier_run(self, epoch: int) -> bool:
        """Such leases are believed only until this run knows better."""
        in_grace = self._grace_end_s is not None
        return (
            self._believes_earlier_runs
            and in_grace
            and 0 < epoch >> COUNTER_BITS < self._run_number
        )

    def _outranks(self, epoch: int, held: Lease) -> bool:
        """Two members present leases of earlier runs: the later grant was the valid one."""
        return held.epoch >> COUNTER_BITS < self._run_number and epoch > held.epoch

    def _grant_all(self, keys: Iterable[GroupQueue]) -> list[Lease]:
        return [lease for key in keys if (lease := self._grant_next(key)) is not None]

    def _grant_next(self, key: GroupQueue) -> Lease | None:
        """Give a free queue to the first in line; None if it is taken or nobody waits."""
        wishes = self._wishes.get(key)
        if not wishes or key in self._held or self._grace_end_s is not None:
            return None
        if key in self._blocks or not self._is_granting:
            return None
        client_id = next(iter(wishes))
        del wishes[client_id]
        if not wishes:
            del self._wishes[key]
        self._counter += 1
        assert self._counter < 1 << COUNTER_BITS, "more grants in one run than an epoch can count"
        return self._install(
            Lease(key, client_id, (self._run_number << COUNTER_BITS) + self._counter)
        )

    def _install(self, lease: Lease) -> Lease:
        assert lease.key not in self._held, "a queue never has two holders"
        self._held[lease.key] = lease
        self._of_group.setdefault(lease.key.group, {})[lease.key] = lease
        self._by_client.setdefault((lease.key.group, lease.client_id), set()).add(lease.key)
        return lease

    def _end(self, lease: Lease) -> None:
        del self._held[lease.key]
        of_group = self._of_group[lease.key.group]
        del of_group[lease.key]
        if not of_group:
            del self._of_group[lease.key.group]
        self._forget(lease.key, lease.client_id)

    def _withdraw(self, key: GroupQueue, client_id: str) -> None:
        wishes = self._wishes.get(key)
        if wishes is None or client_id not in wishes:
            return
        del wishes[client_id]
        if not wishes:
            del self._wishes[key]
        held = self._held.get(key)
        if held is None or held.client_id != client_id:
            self._forget(key, client_id)

    def _forget(self, key: GroupQueue, client_id: str) -> None:
        """Drop the queue from the client's set unless it still waits for it."""
        if client_id in self._wishes.get(key, ()):
            return
        keys = self._by_client.get((key.group, client_id))
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._by_client[(key.group, client_id)]
