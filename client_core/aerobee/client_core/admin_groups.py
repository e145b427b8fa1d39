"""Consumer groups, as `AdminClient.groups` shows and changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from aerobee.client_core.admin import Admin, GroupQueueState
from aerobee.client_core.deletions import DeletedGroup, Deletions
from aerobee.client_core.master_search import AnswerDict, AnswerList
from aerobee.client_core.offsets import all_of
from aerobee.cluster_view.route import MessageQueue
from aerobee.domain.names import is_system_group
from aerobee.runtime.errors import GroupNotFound, InvalidArgument
from aerobee.store.format.retry_delays import Steps
from aerobee.v1 import broker_pb2


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of a group."""

    client_id: str
    subscriptions: Mapping[str, str]
    """Expression by topic; that of an SQL filter begins with `SQL: `."""
    broadcasting: bool
    last_heartbeat_age_ms: int
    official: str
    """The kind of Apache RocketMQ's official client; empty: one of Aerobee's."""


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


class GroupAdmin:
    """Consumer groups: list, show, configure, delete. Every call may raise Unreachable,
    DeadlineExceeded and AccessDenied, and NoBrokerAvailable: of what is asked if no broker answers,
    of what is changed while a broker group has no master."""

    def __init__(self, admin: Admin, deletions: Deletions) -> None:
        self._admin = admin
        self._deletions = deletions

    async def list(self, *, with_own: bool = False) -> AnswerList[str]:
        """The names of all groups; `with_own` includes the system's."""
        names = await self._admin.list_groups()
        return AnswerList(
            [name for name in names if with_own or not is_system_group(name)], names.unanswered
        )

    async def describe(self, name: str) -> Group:
        """A group's members, offsets and lag. Raises GroupNotFound, IllegalName;
        NoBrokerAvailable: a broker that does not answer may know it."""
        state = await self._admin.describe_group(name)
        return Group(
            name=name,
            members=tuple(_member(each) for each in state.members),
            queues=state.queues,
            retry={broker: _retry(each) for broker, each in state.retry.items()},
            unanswered=state.unanswered,
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
        return await self._admin.removed_unread(name)

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
        answers = await self._admin.configure_group(name, wanted)
        return {broker: _retry(each) for broker, each in answers.items()}

    async def delete(self, name: str, *, force: bool = False) -> DeletedGroup:
        """Delete a group's offsets, leases and settings on every broker.

        Args:
            force: end the sessions of its members first.

        Raises:
            GroupInUse: it has members, and `force` was not given. GroupNotFound, Busy.
        """
        return await self._deletions.delete_group(name, force=force)

    async def committed_offsets(
        self, name: str, topic: str, queues: Sequence[tuple[str, int]] = ()
    ) -> AnswerDict[MessageQueue, int]:
        """What `delete_offsets` would delete."""
        return await self._deletions.committed_offsets(name, topic, queues)

    async def delete_offsets(
        self, name: str, topic: str, queues: Sequence[tuple[str, int]] = ()
    ) -> dict[MessageQueue, int]:
        """Forget what a group committed on a topic; returns the former offsets. Neither the topic
        nor the queues need exist.

        Args:
            queues: (broker name, queue id) of the queues to forget; empty: all.

        Raises:
            LeaseHeld: a member holds one of the queues.
        """
        return await self._deletions.delete_offsets(name, topic, queues)


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
