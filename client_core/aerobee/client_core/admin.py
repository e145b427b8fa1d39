"""The cluster and its consumer groups as an operator sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.master_search import AnswerDict, AnswerList, RollCall, ask_masters
from aerobee.client_core.offsets import all_of
from aerobee.cluster_view.methods import (
    CLEAN_STORE,
    CONFIGURE_GROUP,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    GET_STATS,
    HAND_OVER,
    LIST_GROUPS,
    REMOVE_REPLICA,
)
from aerobee.cluster_view.route import Endpoint, MessageQueue
from aerobee.domain.names import check_group_name
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, nameserver_pb2

CLEAN_TIMEOUT_MS = 300_000
"""A command removes up to 200 segments, with a pause after each."""
HAND_OVER_TIMEOUT_MS = 10_000
MASTER_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class GroupQueueState:
    """One queue of a consumer group, as its broker sees it."""

    queue: MessageQueue
    lease_holder: str | None
    """Client id of the member that holds the queue's lease."""
    lease_epoch: int
    committed_offset: int | None
    """None: the group never committed here."""
    min_offset: int
    max_offset_end: int

    @property
    def lag(self) -> int:
        """Messages that are readable but not committed."""
        start = self.min_offset if self.committed_offset is None else self.committed_offset
        return max(0, self.max_offset_end - max(start, self.min_offset))


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group over all brokers."""

    group: str
    members: tuple[broker_pb2.GroupMember, ...]
    """By client id; a member known to several brokers is listed once."""
    queues: tuple[GroupQueueState, ...]
    """In ascending order."""
    retry: Mapping[str, broker_pb2.RetrySettings] = field(default_factory=dict)
    """By broker name: how failed messages are redelivered."""
    unanswered: tuple[str, ...] = ()
    """Broker groups that could not be asked; their queues and members are missing here."""

    @property
    def lag(self) -> int | None:
        """None: not known, because a broker group could not be asked."""
        return None if self.unanswered else sum(queue.lag for queue in self.queues)


class Admin:
    """Describes brokers and groups. A broker group that does not answer is not an error, unless
    none does: each answer names it as `unanswered`.

    Example::

        async with ClusterConnection("127.0.0.1:8081") as connection:
            state = await Admin(connection).describe_group("billing")
            print(state.lag)
    """

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._channels = connection.channels
        self._nameservers = connection.nameservers
        self._clock = connection.clock
        self._cluster = connection.cluster
        self._timeout_ms = timeout_ms

    async def describe_cluster(self) -> nameserver_pb2.ClusterDescription:
        """All registered brokers with their last heartbeats, and the broker groups.

        Raises:
            Unreachable, DeadlineExceeded: no nameserver answers.
        """
        return await self._nameservers.call(
            DESCRIBE_CLUSTER,
            nameserver_pb2.DescribeClusterRequest(cluster=self._cluster),
            timeout_ms=self._timeout_ms,
        )

    async def roll_call(self) -> RollCall:
        """The live masters, and the broker groups without one. Waits for a group that is electing
        one; it is absent if it has none in time, and at once if none of its brokers is alive."""
        end_s = self._clock.monotonic_s() + self._timeout_ms / 1_000
        while True:
            description = await self.describe_cluster()
            call = RollCall.of(description)
            alive = {each.identity.broker_name for each in description.brokers}
            if alive.isdisjoint(call.absent) or self._clock.monotonic_s() >= end_s:
                return call
            await asyncio.sleep(MASTER_POLL_S)

    async def masters(self) -> list[Endpoint]:
        """The live masters, by broker name, as `roll_call` has them."""
        return list((await self.roll_call()).masters)

    async def all_masters(self, wanted: Collection[str] = ()) -> list[Endpoint]:
        """The masters of all broker groups, or of the given ones, by broker name: for what must be
        done on each of them. Raises NoBrokerAvailable: one of them has none now."""
        call = await self.roll_call()
        masters = {endpoint.broker_name: endpoint for endpoint in call.masters}
        names = set(wanted) or {*masters, *call.absent}
        if missing := sorted(names - masters.keys()):
            raise errors.NoBrokerAvailable(
                f"{', '.join(missing)} has no master now, and nothing was changed; see `aerobee "
                "cluster show`"
            )
        return [masters[name] for name in sorted(names)]

    async def master(self, broker_name: str) -> Endpoint:
        """The live master of a broker group; waits for one as `masters` does.

        Raises NoBrokerAvailable: it has none now, or there is no such group.
        """
        for endpoint in await self.masters():
            if endpoint.broker_name == broker_name:
                return endpoint
        raise errors.NoBrokerAvailable(
            f"{broker_name} has no master now, or is no broker group; see `aerobee cluster show`"
        )

    async def readers(self) -> AnswerList[Endpoint]:
        """One live broker of each broker group that has its messages, by broker name: the master,
        or a slave if there is none. `unanswered`: the groups without a live broker."""
        description = await self.describe_cluster()
        readers: dict[str, Endpoint] = {}
        for endpoint in map(Endpoint.from_proto, description.brokers):
            if endpoint.is_master or endpoint.broker_name not in readers:
                readers[endpoint.broker_name] = endpoint
        absent = {each.broker_name for each in description.groups} - readers.keys()
        return AnswerList([readers[name] for name in sorted(readers)], sorted(absent))

    async def hand_over(
        self,
        broker_name: str,
        *,
        successor_id: int | None = None,
        timeout_ms: int = HAND_OVER_TIMEOUT_MS,
    ) -> broker_pb2.HandOverResponse:
        """Make another replica of a broker group its master; nothing that was sent is lost.

        Args:
            successor_id: the next master; None leaves the choice among those in sync to the
                current one.

        Raises:
            NoBrokerAvailable: the group has no master now, or there is no such group.
            InvalidArgument: the successor is not in sync, or no replica is.
            NotMaster: another replica became master in the meantime.
            Unreachable, DeadlineExceeded: the current master continues, or its successor has not
                said yet that it took over.
        """
        master = await self.master(broker_name)
        return await self._channels.call(
            master.address,
            HAND_OVER,
            broker_pb2.HandOverRequest(successor_id=successor_id, timeout_ms=timeout_ms),
            timeout_ms=timeout_ms + self._timeout_ms,
        )

    async def remove_replica(self, broker_name: str, broker_id: int) -> nameserver_pb2.GroupRecord:
        """Forget a replica that is gone for good: its group's master no longer waits for it.

        Raises:
            GroupNotFound: there is no such broker group.
            InvalidArgument: the replica is alive, the master, in sync, or unknown; the latter also
                when a nameserver failed after it had removed it.
            Unreachable, DeadlineExceeded, RegistryUnavailable: no nameserver could do it.
        """
        return await self._nameservers.call(
            REMOVE_REPLICA,
            nameserver_pb2.RemoveReplicaRequest(
                cluster=self._cluster, broker_name=broker_name, broker_id=broker_id
            ),
            timeout_ms=self._timeout_ms,
        )

    async def broker_stats(self, address: str) -> broker_pb2.BrokerStats:
        """Counters and watermarks of one broker.

        Raises:
            Unreachable, DeadlineExceeded.
        """
        return await self._channels.call(
            address, GET_STATS, broker_pb2.GetStatsRequest(), timeout_ms=self._timeout_ms
        )

    async def clean_store(
        self,
        address: str,
        *,
        force: bool = False,
        unread: bool = False,
        timeout_ms: int = CLEAN_TIMEOUT_MS,
    ) -> broker_pb2.CleanStoreResponse:
        """Let one broker remove expired log segments now, at any hour.

        Args:
            force: also unexpired ones, as long as the disk is fuller than the broker's limit.
            unread: also messages that groups have not read; the answer counts them.

        Raises:
            Unreachable; DeadlineExceeded: it continues to the end of the current segment;
            ShuttingDown, StoreFailed.
        """
        return await self._channels.call(
            address,
            CLEAN_STORE,
            broker_pb2.CleanStoreRequest(force=force, unread=unread),
            timeout_ms=timeout_ms,
        )

    async def removed_unread(self, group: str) -> AnswerDict[MessageQueue, int]:
        """How many messages each queue lost before the group had read them, since its broker's
        start.

        Raises:
            Unreachable, DeadlineExceeded: no nameserver answers. NoBrokerAvailable: no broker does.
        """

        async def ask(endpoint: Endpoint) -> list[tuple[MessageQueue, int]]:
            stats = await self.broker_stats(endpoint.address)
            return [
                (MessageQueue(each.topic, endpoint.broker_name, each.queue_id), each.messages)
                for each in stats.removed_unread
                if each.group == group
            ]

        answers, unanswered = await ask_masters(await self.roll_call(), ask)
        lost = sorted(each for answer in answers.values() for each in answer)
        return AnswerDict(dict(lost), unanswered)

    async def list_groups(self) -> AnswerList[str]:
        """Names of all groups that have members, offsets or settings on some broker, sorted.

        Raises:
            Unreachable, DeadlineExceeded: no nameserver answers. NoBrokerAvailable: no broker does.
        """

        async def ask(endpoint: Endpoint) -> Sequence[str]:
            response = await self._channels.call(
                endpoint.address,
                LIST_GROUPS,
                broker_pb2.ListGroupsRequest(),
                timeout_ms=self._timeout_ms,
            )
            return response.groups

        answers, unanswered = await ask_masters(await self.roll_call(), ask)
        return AnswerList(sorted({each for some in answers.values() for each in some}), unanswered)

    async def describe_group(self, group: str) -> GroupState:
        """Members, leases, offsets and lag of a group.

        Raises:
            IllegalName; GroupNotFound: no broker knows it; NoBrokerAvailable: those that answer do
            not know it, and others do not answer; Unreachable, DeadlineExceeded: no nameserver
            answers.
        """
        check_group_name(group)

        async def ask(endpoint: Endpoint) -> broker_pb2.GroupDescription | None:
            try:
                return await self._channels.call(
                    endpoint.address,
                    DESCRIBE_GROUP,
                    broker_pb2.DescribeGroupRequest(group=group),
                    timeout_ms=self._timeout_ms,
                )
            except errors.GroupNotFound:
                return None

        answers, unanswered = await ask_masters(await self.roll_call(), ask)
        found = {broker: each for broker, each in answers.items() if each is not None}
        if unanswered and not found:
            raise errors.NoBrokerAvailable(
                f"no broker that answers knows group {group!r}, and {', '.join(unanswered)} does "
                "not answer: see `aerobee cluster show`"
            )
        if not found:
            raise unknown_group(group)
        members = {one.client_id: one for each in found.values() for one in each.members}
        queues = [
            _queue_state(broker, queue) for broker, each in found.items() for queue in each.queues
        ]
        return GroupState(
            group=group,
            members=tuple(members[client_id] for client_id in sorted(members)),
            queues=tuple(sorted(queues, key=lambda state: state.queue)),
            retry={broker: each.retry for broker, each in found.items()},
            unanswered=unanswered,
        )

    async def configure_group(
        self, group: str, settings: broker_pb2.RetrySettings
    ) -> dict[str, broker_pb2.RetrySettings]:
        """Change how a group's failed messages are redelivered, and whether it is ordered, at the
        masters of all broker groups; unset fields stay unchanged. Returns the resulting settings,
        by broker name.

        Raises:
            IllegalName, InvalidArgument, LimitReached; NoBrokerAvailable: a broker group has no
            master now, and nothing was changed; Unreachable, DeadlineExceeded, NotMaster: some
            brokers may have changed it; repeat the call.
        """
        check_group_name(group)
        masters = await self.all_masters()

        async def ask(endpoint: Endpoint) -> tuple[str, broker_pb2.RetrySettings]:
            request = broker_pb2.ConfigureGroupRequest(group=group, retry=settings)
            answer = await self._channels.call(
                endpoint.address, CONFIGURE_GROUP, request, timeout_ms=self._timeout_ms
            )
            return endpoint.broker_name, answer

        return dict(sorted(await all_of([ask(each) for each in masters])))


def unknown_group(group: str) -> errors.GroupNotFound:
    return errors.GroupNotFound(
        f"no broker knows group {group!r}: check the name with `aerobee group list`"
    )


def _queue_state(broker_name: str, queue: broker_pb2.GroupQueue) -> GroupQueueState:
    return GroupQueueState(
        queue=MessageQueue(queue.topic, broker_name, queue.queue_id),
        lease_holder=queue.lease_holder or None,
        lease_epoch=queue.lease_epoch,
        committed_offset=None if queue.committed_offset < 0 else queue.committed_offset,
        min_offset=queue.min_offset,
        max_offset_end=queue.max_offset,
    )
