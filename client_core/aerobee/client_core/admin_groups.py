"""Consumer groups, as `AdminClient.groups` shows and changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from aerobee.client_core.admin_brokers import BrokerAdmin
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.group_summaries import GroupSummaries, summaries_of
from aerobee.client_core.master_search import AnswerDict, AnswerList, Masters, ask_masters
from aerobee.client_core.offsets import all_of
from aerobee.cluster_view.methods import (
    CONFIGURE_GROUP,
    DELETE_GROUP,
    DELETE_OFFSETS,
    DESCRIBE_GROUP,
    LIST_GROUP_LAGS,
    LIST_GROUPS,
)
from aerobee.cluster_view.route import Endpoint, MessageQueue
from aerobee.domain.names import check_group_name, is_system_group
from aerobee.runtime.errors import GroupInUse, GroupNotFound, InvalidArgument, NoBrokerAvailable
from aerobee.store.format.retry_delays import Steps
from aerobee.v1 import broker_pb2

DELETE_GROUP_TIMEOUT_MS: Final = 130_000
"""A forced deletion waits for the longest session that brokers allow by default."""


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
class Member:
    """A consumer of a group."""

    client_id: str
    subscriptions: Mapping[str, str]
    """Expression by topic; that of an SQL filter begins with `SQL: `."""
    broadcasting: bool
    last_heartbeat_age_ms: int
    official: str
    """What kind of client it is, if it holds no queues: `simple consumer`, or a client of Apache
    RocketMQ; empty: a push or pull consumer of Aerobee."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """How long a failed message waits before it is redelivered: `initial_ms`, then `multiplier`
    times as long each time, `max_ms` at most. A field that is 0 takes its default: 5 s, 2 h, twice.
    """

    initial_ms: int
    max_ms: int
    multiplier: int = 2


@dataclass(frozen=True, slots=True)
class InOrderRetry:
    """How a group's members try a failed message again that holds up its queue, with
    `Ordering.ORDERLY`."""

    retries_max: int | None
    """After this many a message becomes a dead letter; None: it is tried again without end, because
    nobody has set the group's `retries_max`."""
    back_off: BackOff
    """Unless the member has `suspend_ms`."""


@dataclass(frozen=True, slots=True)
class GroupRetry:
    """How a group's failed messages are redelivered."""

    retries_max: int
    """After this many a message becomes a dead letter."""
    back_off: BackOff | None
    """None: the broker's delay levels, or Apache's list of steps."""
    steps_ms: tuple[int, ...]
    """Apache's list of steps, if the group has one."""
    ordered: bool
    """A redelivered message holds back the others of its message group."""
    delays_ms: tuple[int, ...] = ()
    """Without `back_off`: how long a message waits after its first failure, its second and so on;
    the last one counts for all further ones. Empty: the broker is an older version."""
    in_order: InOrderRetry | None = None
    """For members that handle messages in order; None: the broker is an older version."""

    @property
    def kind(self) -> Literal["exponential", "steps", "levels"]:
        """The kind of its backoff."""
        if self.back_off is not None:
            return "exponential"
        return "steps" if self.steps_ms else "levels"


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group on all brokers."""

    name: str
    members: tuple[Member, ...]
    queues: tuple[GroupQueueState, ...]
    retry: Mapping[str, GroupRetry]
    """By broker group."""
    unanswered: tuple[str, ...] = ()
    """Broker groups that could not be asked; their queues and members are missing here."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics to which a member subscribes, or on which the group has offsets, by name."""
        subscribed = {topic for member in self.members for topic in member.subscriptions}
        return tuple(sorted(subscribed | {queue.queue.topic for queue in self.queues}))

    @property
    def lag(self) -> int | None:
        """Messages that are stored but not finished. None: not known, because a broker group could
        not be asked."""
        return None if self.unanswered else sum(queue.lag for queue in self.queues)


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """What a deletion removed, over all brokers."""

    offsets: int
    """Queues on which the group had committed."""
    members_ended: int
    """Sessions that were ended; one member has a session with each broker."""


class GroupAdmin:
    """Consumer groups: list, show, configure, delete. Every call may raise Unreachable,
    DeadlineExceeded and AccessDenied, and NoBrokerAvailable: of what is asked if no broker answers,
    of what is changed while a broker group has no master."""

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._brokers = BrokerAdmin(connection, timeout_ms=timeout_ms)
        self._masters = Masters(connection, timeout_ms=timeout_ms)
        self._channels = connection.channels
        self._timeout_ms = timeout_ms

    async def list(self, *, with_own: bool = False) -> AnswerList[str]:
        """The names of all groups; `with_own` includes the system's."""

        async def ask(endpoint: Endpoint) -> Sequence[str]:
            response = await self._channels.call(
                endpoint.address,
                LIST_GROUPS,
                broker_pb2.ListGroupsRequest(),
                timeout_ms=self._timeout_ms,
            )
            return response.groups

        answers, unanswered = await ask_masters(await self._masters.roll_call(), ask)
        names = {each for some in answers.values() for each in some}
        return AnswerList(
            sorted(name for name in names if with_own or not is_system_group(name)), unanswered
        )

    async def summaries(
        self, *, topic: str = "", group: str = "", with_own: bool = False
    ) -> GroupSummaries:
        """What each group has not read, its members and dead letters: one question to each broker,
        which may answer with what it read some seconds ago.

        Args:
            topic: only groups that read this topic, and what they have not read of it.
            group: only this group; without a result if no broker knows it.
            with_own: also the system's groups.
        """
        request = broker_pb2.ListGroupLagsRequest(topic=topic, group=group)

        async def ask(endpoint: Endpoint) -> broker_pb2.GroupLagRows:
            return await self._channels.call(
                endpoint.address, LIST_GROUP_LAGS, request, timeout_ms=self._timeout_ms
            )

        answers, unanswered = await ask_masters(await self._masters.roll_call(), ask)
        return summaries_of(answers, unanswered, with_own=with_own)

    async def describe(self, name: str) -> Group:
        """A group's members, offsets and lag. Raises GroupNotFound, IllegalName;
        NoBrokerAvailable: a broker that does not answer may know it."""
        check_group_name(name)

        async def ask(endpoint: Endpoint) -> broker_pb2.GroupDescription | None:
            try:
                return await self._channels.call(
                    endpoint.address,
                    DESCRIBE_GROUP,
                    broker_pb2.DescribeGroupRequest(group=name),
                    timeout_ms=self._timeout_ms,
                )
            except GroupNotFound:
                return None

        answers, unanswered = await ask_masters(await self._masters.roll_call(), ask)
        found = {broker: each for broker, each in answers.items() if each is not None}
        if unanswered and not found:
            raise NoBrokerAvailable(
                f"no broker that answers knows group {name!r}, and {', '.join(unanswered)} does "
                "not answer: see `aerobee cluster show`"
            )
        if not found:
            raise unknown_group(name)
        # A member known to several brokers is listed once.
        members = {one.client_id: one for each in found.values() for one in each.members}
        queues = [
            _queue_state(broker, queue) for broker, each in found.items() for queue in each.queues
        ]
        return Group(
            name=name,
            members=tuple(_member(members[client_id]) for client_id in sorted(members)),
            queues=tuple(sorted(queues, key=lambda state: state.queue)),
            retry={broker: _retry(each.retry) for broker, each in found.items()},
            unanswered=unanswered,
        )

    async def describe_all(self, *, with_own: bool = False) -> AnswerList[Group]:
        """All groups that `list` names, by name, without those deleted in the meantime."""

        async def ask(name: str) -> Group | None:
            try:
                return await self.describe(name)
            except GroupNotFound:
                return None

        names = await self.list(with_own=with_own)
        found = [each for each in await all_of([ask(name) for name in names]) if each is not None]
        silent = {*names.unanswered, *(each for group in found for each in group.unanswered)}
        return AnswerList(found, sorted(silent))

    async def removed_unread(self, name: str) -> AnswerDict[MessageQueue, int]:
        """How many messages each queue lost before the group had read them, since its broker's
        start."""

        async def ask(endpoint: Endpoint) -> list[tuple[MessageQueue, int]]:
            statistics = await self._brokers.statistics(endpoint.address)
            return [
                (MessageQueue(each.topic, endpoint.broker_name, each.queue_id), each.messages)
                for each in statistics.removed_unread
                if each.group == name
            ]

        answers, unanswered = await ask_masters(await self._masters.roll_call(), ask)
        return AnswerDict(
            dict(sorted(each for answer in answers.values() for each in answer)), unanswered
        )

    async def configure(
        self,
        name: str,
        *,
        retries_max: int | None = None,
        back_off: BackOff | None = None,
        by_delay_levels: bool = False,
        ordered: bool | None = None,
    ) -> Mapping[str, GroupRetry]:
        """Change how failed messages are redelivered; what is not given stays. Returns the
        resulting settings, by broker group. `by_delay_levels` uses the broker's delay levels as the
        backoff.

        Raises:
            IllegalName, InvalidArgument, LimitReached.
            Unreachable, DeadlineExceeded, NotMaster: some brokers may have changed it; repeat the
                call.
        """
        if back_off is not None and by_delay_levels:
            raise InvalidArgument("give either back_off or by_delay_levels")
        wanted = broker_pb2.RetrySettings(retries_max=retries_max, ordered=ordered)
        if back_off is not None:
            wanted.exponential.initial_ms = back_off.initial_ms
            wanted.exponential.max_ms = back_off.max_ms
            wanted.exponential.multiplier = back_off.multiplier
        if by_delay_levels:
            wanted.levels.SetInParent()
        check_group_name(name)

        async def ask(endpoint: Endpoint) -> tuple[str, GroupRetry]:
            request = broker_pb2.ConfigureGroupRequest(group=name, retry=wanted)
            answer = await self._channels.call(
                endpoint.address, CONFIGURE_GROUP, request, timeout_ms=self._timeout_ms
            )
            return endpoint.broker_name, _retry(answer)

        masters = await self._masters.all()
        return dict(sorted(await all_of([ask(each) for each in masters])))

    async def delete(self, name: str, *, force: bool = False) -> DeletedGroup:
        """Delete a group's offsets, leases and settings on every broker.

        Args:
            force: end the sessions of its members first.

        Raises:
            GroupInUse: it has members, and `force` was not given. GroupNotFound, Busy.
            Unreachable, DeadlineExceeded: some brokers may have deleted it; repeat the call.
        """
        check_group_name(name)
        masters = await self._masters.all()
        if not force:
            await self._check_no_members(name)

        async def ask(endpoint: Endpoint) -> broker_pb2.DeleteGroupResponse:
            return await self._channels.call(
                endpoint.address,
                DELETE_GROUP,
                broker_pb2.DeleteGroupRequest(group=name, force=force),
                timeout_ms=DELETE_GROUP_TIMEOUT_MS,
            )

        answers = await all_of([ask(endpoint) for endpoint in masters])
        if not any(answer.known for answer in answers):
            raise unknown_group(name)
        return DeletedGroup(
            sum(answer.removed_count for answer in answers),
            sum(answer.members_ended for answer in answers),
        )

    async def _check_no_members(self, name: str) -> None:
        """Before any broker deletes: members of a group need not be on all of them."""
        try:
            group = await self.describe(name)
        except GroupNotFound:
            return
        if group.unanswered:
            raise NoBrokerAvailable(
                f"{', '.join(group.unanswered)} does not answer, so whether group {name} has "
                "members is not known, and nothing was deleted; see `aerobee cluster show`"
            )
        if group.members:
            names = ", ".join(repr(member.client_id) for member in group.members[:3])
            raise GroupInUse(
                f"group {name} has members ({names}; {len(group.members)} in all): stop them, "
                "or delete the group with --force, which ends their sessions"
            )

    async def committed_offsets(
        self, name: str, topic: str, queues: Sequence[tuple[str, int]] = ()
    ) -> AnswerDict[MessageQueue, int]:
        """What `delete_offsets` would delete."""
        group = await self.describe(name)
        return AnswerDict(
            {
                each.queue: each.committed_offset
                for each in group.queues
                if each.committed_offset is not None
                and each.queue.topic == topic
                and (not queues or (each.queue.broker_name, each.queue.queue_id) in queues)
            },
            group.unanswered,
        )

    async def delete_offsets(
        self, name: str, topic: str, queues: Sequence[tuple[str, int]] = ()
    ) -> dict[MessageQueue, int]:
        """Forget what a group committed on a topic; returns the former offsets, for at most 10,000
        queues of a broker. Neither the topic nor the queues need exist.

        Args:
            queues: (broker name, queue id) of the queues to forget; empty: all.

        Raises:
            LeaseHeld: a member holds one of the queues.
            Unreachable, DeadlineExceeded: some brokers may have deleted theirs; repeat the call.
        """
        masters = await self._masters.all({broker for broker, _ in queues})

        async def ask(endpoint: Endpoint) -> Sequence[tuple[MessageQueue, int]]:
            queue_ids = [each for broker, each in queues if broker == endpoint.broker_name]
            response = await self._channels.call(
                endpoint.address,
                DELETE_OFFSETS,
                broker_pb2.DeleteOffsetsRequest(group=name, topic=topic, queue_ids=queue_ids),
                timeout_ms=self._timeout_ms,
            )
            return [
                (MessageQueue(each.topic, endpoint.broker_name, each.queue_id), each.offset)
                for each in response.removed
            ]

        answers = await all_of([ask(endpoint) for endpoint in masters])
        return dict(sorted(removed for answer in answers for removed in answer))


def unknown_group(name: str) -> GroupNotFound:
    """What is raised if no broker knows a group."""
    return GroupNotFound(
        f"no broker knows group {name!r}: check the name with `aerobee group list`"
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


def _member(found: broker_pb2.GroupMember) -> Member:
    return Member(
        client_id=found.client_id,
        subscriptions={each.topic: _expression(each.filter) for each in found.subscriptions},
        broadcasting=found.broadcasting,
        last_heartbeat_age_ms=found.last_heartbeat_age_ms,
        official=found.official,
    )


def _expression(wanted: broker_pb2.Filter) -> str:
    if wanted.type == broker_pb2.SQL92:
        return f"SQL: {' '.join(wanted.expression.split())}"
    return wanted.expression or "*"


def _retry(found: broker_pb2.RetrySettings) -> GroupRetry:
    kind = found.WhichOneof("back_off")
    in_order = found.in_order
    limit = in_order.retries_max if in_order.HasField("retries_max") else None
    steps_ms = tuple(found.steps.delays_ms)
    return GroupRetry(
        retries_max=found.retries_max,
        back_off=_back_off(found.exponential) if kind == "exponential" else None,
        steps_ms=steps_ms,
        ordered=found.ordered,
        delays_ms=Steps(steps_ms).all_ms if steps_ms else tuple(found.levels.delays_ms),
        in_order=InOrderRetry(limit, _back_off(in_order.back_off))
        if found.HasField("in_order")
        else None,
    )


def _back_off(found: broker_pb2.ExponentialBackOff) -> BackOff:
    return BackOff(found.initial_ms, found.max_ms, found.multiplier)
