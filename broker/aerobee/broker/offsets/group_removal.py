"""Deletes groups and their offsets: on an operator's command, or because they are not used.

Owns: the order of the steps. While a group is being deleted, no member joins it. Its offsets are
removed once nobody can believe that it holds one of its queues, so that no commit under an older
lease brings one back; then the group's name is removed from every table. A single record of the
offset journal, which every replica applies, makes it effective.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.entries import OffsetsRemoved
from aerobee.broker.offsets.journal import OffsetJournal
from aerobee.domain import names
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy, DeadlineExceeded, GroupDeleted, GroupInUse, LeaseHeld
from aerobee.store.engine.tables.config_tables import SubscriptionGroupTable
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable

ENTRIES_PER_TURN = 256
POLL_S = 0.2
"""How often to check whether former holders may still believe that they hold a queue."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What a deletion removed."""

    offsets: list[tuple[GroupQueue, int]]
    members_ended: int = 0
    was_known: bool = True
    """Whether this broker knew anything of the group."""


class GroupRemoval:
    """Deletes groups and offsets on this master; on the loop."""

    def __init__(
        self,
        table: ConsumerOffsetTable,
        configs: SubscriptionGroupTable,
        journal: OffsetJournal,
        coordinator: GroupCoordinator,
        clock: Clock,
        *,
        save_configs: Callable[[], Awaitable[None]],
    ) -> None:
        """`save_configs` writes subscriptionGroup.json, if the disk has room."""
        self._table = table
        self._configs = configs
        self._journal = journal
        self._coordinator = coordinator
        self._clock = clock
        self._save_configs = save_configs
        self._closing: dict[str, int] = {}

    def check_joinable(self, group: str) -> None:
        """Raises GroupDeleted while the group is being deleted, so that a member whose stream was
        broken when the others were told learns of it, too."""
        if group in self._closing:
            raise GroupDeleted(f"group {group} is being deleted; join again in a moment")

    async def delete_group(
        self, group: str, *, force: bool, timeout_s: float, reason: str = "deleted"
    ) -> Removed:
        """Remove all that this broker has of a group.

        `force` ends the sessions of its members first.

        Raises:
            GroupInUse: it has members, without `force`.
            Busy: members that were told to stop, or those of the last run, may continue for longer
                than `timeout_s`. Nothing was removed.
            DeadlineExceeded: not confirmed in time; it may still take effect.
            NotMaster, ReplicaBehind, NotWritable, StoreFailed.
            InvalidArgument: the group is the brokers' own.
        """
        names.check_group_changeable(group)
        end_s = self._clock.monotonic_s() + timeout_s
        ended = 0
        with self._closed(group):
            self._journal.check_granting()
            if force:
                self._coordinator.expire(self._clock.monotonic_s())
                ended = self._coordinator.close_group(group)
            await self._until_unheld(group, None, None, end_s)
            if members := [each.client_id for each in self._coordinator.members.members(group)]:
                raise _in_use(group, members)
            remoting = self._coordinator.ownership.self_assigning(group)
            if remoting and not force:  # they have no session: forced, the group begins anew
                raise _in_use(group, [each.client_id for each in remoting])
            entry = OffsetsRemoved(group, None, None, self._clock.now_ms(), reason)
            was_known = bool(
                ended or group in self._configs or self._journal.writer().selected(entry)
            )
            offsets = await self._remove([entry], end_s) if was_known else []
            self._configs.remove(group)
            self._coordinator.members.forget(group)
        if was_known:
            await self._save_configs()
        return Removed(offsets, ended, was_known)

    async def delete_offsets(
        self, group: str, topic: str, queue_ids: Sequence[int], *, timeout_s: float
    ) -> Removed:
        """Remove a group's offsets on these queues of a topic, on all if none is named. Neither
        queues nor topic need to exist.

        Raises:
            LeaseHeld: a member holds one of the queues.
            Busy, DeadlineExceeded, NotMaster, ReplicaBehind, NotWritable, StoreFailed,
            InvalidArgument: as `delete_group`.
        """
        names.check_group_changeable(group)
        end_s = self._clock.monotonic_s() + timeout_s
        self._journal.check_granting()
        await self._until_unheld(group, topic, queue_ids or None, end_s)
        now_ms = self._clock.now_ms()
        entries = [
            OffsetsRemoved(group, topic, queue_id, now_ms, "deleted")
            for queue_id in (queue_ids or (None,))
        ]
        return Removed(await self._remove(entries, end_s))

    # ---------------------------------------------------------------------- inside

    @contextmanager
    def _closed(self, group: str) -> Iterator[None]:
        self._closing[group] = self._closing.get(group, 0) + 1
        try:
            yield
        finally:
            self._closing[group] -= 1
            if not self._closing[group]:
                del self._closing[group]

    async def _until_unheld(
        self, group: str, topic: str | None, queue_ids: Sequence[int] | None, end_s: float
    ) -> None:
        """Until no member can believe that it holds one of the queues. Raises Busy; LeaseHeld."""
        wanted = None if queue_ids is None else frozenset(queue_ids)

        def concerns(key: GroupQueue) -> bool:
            is_topic = topic is None or key.topic == topic
            return is_topic and (wanted is None or key.queue_id in wanted)

        while True:
            now_s = self._clock.monotonic_s()
            self._coordinator.expire(now_s)
            self._journal.check_granting()
            leases = self._coordinator.ownership.leases
            if topic is not None:
                for lease in leases.held(group):
                    if concerns(lease.key):
                        raise LeaseHeld(
                            f"{lease.client_id!r} holds queue {lease.key.queue_id} of topic "
                            f"{lease.key.topic} for group {group}; stop it first, or reset the "
                            "offset instead"
                        )
            until_s = leases.believed_until_s(group, concerns)
            if until_s is None or until_s <= now_s:
                return
            if until_s >= end_s:
                raise Busy(
                    f"members of group {group} may still work on its queues for "
                    f"{until_s - now_s:.1f} s; nothing was deleted: try again after that",
                    retry_after_ms=max(1, int((until_s - now_s) * 1_000)),
                )
            await asyncio.sleep(min(POLL_S, until_s - now_s))

    async def _remove(
        self, entries: Sequence[OffsetsRemoved], end_s: float
    ) -> list[tuple[GroupQueue, int]]:
        removed: list[tuple[GroupQueue, int]] = []
        waiting: set[asyncio.Future[None]] = set()
        for number, entry in enumerate(entries, 1):
            writer = self._journal.writer()
            standings = [(key, writer.standing(key)) for key in writer.selected(entry)]
            removed += [(key, each.offset) for key, each in standings if each is not None]
            waiting.add(writer.remove(entry))
            if number % ENTRIES_PER_TURN == 0:
                await asyncio.sleep(0)
        left_s = max(0.0, end_s - self._clock.monotonic_s())
        done, late = await asyncio.wait(waiting, timeout=left_s)
        for future in done:
            future.result()
        if late:
            raise DeadlineExceeded(
                "the deletion is stored, but disk and replicas did not confirm it in time; delete "
                "again to be sure"
            )
        return removed


def _in_use(group: str, client_ids: Sequence[str]) -> GroupInUse:
    names = ", ".join(map(repr, client_ids[:3]))
    return GroupInUse(
        f"group {group} has members here ({names}; {len(client_ids)} in all): stop them, or delete "
        "the group with --force, which ends their sessions"
    )
