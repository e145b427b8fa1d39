"""Deletes groups and offsets for an operator, on all brokers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.client_core.admin import Admin, unknown_group
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.master_search import AnswerDict
from aerobee.client_core.offsets import all_of
from aerobee.cluster_view.methods import DELETE_GROUP, DELETE_OFFSETS
from aerobee.cluster_view.route import Endpoint, MessageQueue
from aerobee.domain.names import check_group_name
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2

DELETE_GROUP_TIMEOUT_MS = 130_000
"""A forced deletion waits for the longest session that brokers allow by default."""


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """What a deletion removed, over all brokers."""

    offsets: int
    """Queues on which the group had committed."""
    members_ended: int
    """Sessions that were ended; one member has a session with each broker."""


class Deletions:
    """Deletes groups and committed offsets; messages stay."""

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._admin = Admin(connection, timeout_ms=timeout_ms)
        self._channels = connection.channels
        self._timeout_ms = timeout_ms

    async def delete_group(
        self, group: str, *, force: bool = False, timeout_ms: int = DELETE_GROUP_TIMEOUT_MS
    ) -> DeletedGroup:
        """Delete a group's offsets, leases and settings on every broker.

        Args:
            force: end the sessions of its members first, and wait until none can still work.

        Raises:
            GroupInUse: it has members, and `force` was not given. Nothing was deleted.
            GroupNotFound: no broker knows it.
            NoBrokerAvailable: a broker group has no master now. Nothing was deleted.
            Busy: former members may continue for longer than `timeout_ms`. IllegalName,
            Unreachable, DeadlineExceeded: some brokers may have deleted it; delete
                it again.
        """
        check_group_name(group)
        masters = await self._admin.all_masters()
        if not force:
            await self._check_no_members(group)

        async def ask(endpoint: Endpoint) -> broker_pb2.DeleteGroupResponse:
            return await self._channels.call(
                endpoint.address,
                DELETE_GROUP,
                broker_pb2.DeleteGroupRequest(group=group, force=force),
                timeout_ms=timeout_ms,
            )

        answers = await all_of([ask(endpoint) for endpoint in masters])
        if not any(answer.known for answer in answers):
            raise unknown_group(group)
        return DeletedGroup(
            sum(answer.removed_count for answer in answers),
            sum(answer.members_ended for answer in answers),
        )

    async def _check_no_members(self, group: str) -> None:
        """Before any broker deletes: members of a group need not be on all of them."""
        try:
            state = await self._admin.describe_group(group)
        except errors.GroupNotFound:
            return
        if state.unanswered:
            raise errors.NoBrokerAvailable(
                f"{', '.join(state.unanswered)} does not answer, so whether group {group} has "
                "members is not known, and nothing was deleted; see `aerobee cluster show`"
            )
        if state.members:
            names = ", ".join(repr(member.client_id) for member in state.members[:3])
            raise errors.GroupInUse(
                f"group {group} has members ({names}; {len(state.members)} in all): stop them, "
                "or delete the group with --force, which ends their sessions"
            )

    async def delete_offsets(
        self, group: str, topic: str, queues: Sequence[tuple[str, int]] = ()
    ) -> dict[MessageQueue, int]:
        """Forget what a group committed on a topic; returns the former offsets, for at most 10,000
        queues of a broker. Neither the queues nor the topic need exist.

        Args:
            queues: (broker name, queue id) of the queues to forget; empty: all.

        Raises:
            LeaseHeld: a member holds one of the queues.
            NoBrokerAvailable: one of these broker groups has no master now, or does not exist.
            IllegalName, Unreachable, DeadlineExceeded: some brokers may have deleted theirs.
        """
        masters = await self._admin.all_masters({broker for broker, _ in queues})

        async def ask(endpoint: Endpoint) -> list[tuple[MessageQueue, int]]:
            queue_ids = [each for broker, each in queues if broker == endpoint.broker_name]
            response = await self._channels.call(
                endpoint.address,
                DELETE_OFFSETS,
                broker_pb2.DeleteOffsetsRequest(group=group, topic=topic, queue_ids=queue_ids),
                timeout_ms=self._timeout_ms,
            )
            return [
                (MessageQueue(each.topic, endpoint.broker_name, each.queue_id), each.offset)
                for each in response.removed
            ]

        answers = await all_of([ask(endpoint) for endpoint in masters])
        return dict(sorted(removed for answer in answers for removed in answer))

    async def committed_offsets(
        self, group: str, topic: str, queues: Sequence[tuple[str, int]] = ()
    ) -> AnswerDict[MessageQueue, int]:
        """What `delete_offsets` would delete. Raises as `describe_group`."""
        state = await self._admin.describe_group(group)
        return AnswerDict(
            {
                each.queue: each.committed_offset
                for each in state.queues
                if each.committed_offset is not None
                and each.queue.topic == topic
                and (not queues or (each.queue.broker_name, each.queue.queue_id) in queues)
            },
            state.unanswered,
        )
