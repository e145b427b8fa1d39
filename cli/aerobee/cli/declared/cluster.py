"""A cluster's side of a plan: reads what there is, and does one step after the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, cast

from aerobee import AdminClient, BackOff, Group, GroupRetry, MessageQueue, Permission, Policy, Topic
from aerobee.access import policies
from aerobee.cli.declared.file import ATTRIBUTE, BY_DEFAULT, EXPONENTIAL, policy_of
from aerobee.cli.declared.plan import (
    DECISION,
    QUEUES,
    TYPE,
    Action,
    Fields,
    Key,
    Kind,
    State,
    Step,
    Value,
    Wish,
)
from aerobee.cli.failures import Failure
from aerobee.domain.names import is_retry_topic, is_system_topic
from aerobee.domain.topic_attributes import MESSAGE_TYPE, topic_type
from aerobee.runtime.errors import GroupNotFound, NoBrokerAvailable
from aerobee.store.format.retry_records import RETRIES_MAX

SubjectKind = Literal["user", "group", "default"]

_BACK_OFF = frozenset({"backOff", "initialMs", "longestMs", "multiplier"})
_DEFAULTS: Fields = {"retriesMax": RETRIES_MAX, "ordered": False, "backOff": "levels"}
"""Of a group that a broker does not know."""


class DeclaredCluster:
    """Over one client, which stays open."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def state(self, wish: Wish) -> State:
        """What the cluster has of the sections of `wish`. Costs one call for topics, and one to
        each master for each group. Raises what these calls do; nothing has changed."""
        things: dict[Key, Fields] = {}
        if Kind.TOPIC in wish.sections:
            for topic in await self._admin.topics.list():
                if not is_system_topic(topic.name) and not is_retry_topic(topic.name):
                    things[Key(Kind.TOPIC, (topic.name,))] = _topic(topic)
        groups = [key for key in wish.things if key.kind is Kind.GROUP]
        for key in groups:
            things[key] = await self._group(key.words[0])
        users: frozenset[str] = frozenset()
        if wish.sections & {Kind.QUOTA, Kind.POLICY}:
            users = frozenset(user.name for user in await self._admin.users.list())
        if Kind.QUOTA in wish.sections:
            for quota in await self._admin.quotas.list():
                words = (quota.kind, quota.name) if quota.name else (quota.kind,)
                things[Key(Kind.QUOTA, words)] = dict(quota.limits)
        if Kind.POLICY in wish.sections:
            things |= dict(_policy(each) for each in await self._admin.policies.list())
        return State(things, users)

    async def present(self) -> State:
        """All that a file can declare. Raises as `state`; NoBrokerAvailable: some of it is not
        known."""
        groups = await self._admin.groups.list()
        _check_whole(groups.unanswered)
        named: dict[Key, Fields] = {Key(Kind.GROUP, (name,)): {} for name in groups}
        return await self.state(Wish(named, frozenset(Kind)))

    async def unread(self, topics: Collection[str]) -> dict[str, int]:
        """How many messages of each topic some group that reads it has not read; all of a topic
        that no group reads. Asks for every group of the cluster."""
        if not topics:
            return {}
        groups = await self._admin.groups.describe_all(with_own=True)
        _check_whole(groups.unanswered)
        found = {}
        for topic in topics:
            readers = [lags for each in groups if (lags := _lags(each, topic)) is not None]
            queues = [each.queue for each in (await self._admin.topics.describe(topic)).queues]
            bounds = await self._admin.offsets.bounds(queues, of_master=True)
            found[topic] = sum(
                max((lags.get(queue, each.count) for lags in readers), default=each.count)
                for queue, each in bounds.items()
            )
        return found

    async def perform(self, step: Step, *, with_unread: bool) -> None:
        """Raises what the call does; and Failure: a topic that shall go has unread messages by now,
        and is kept unless `with_unread`."""
        match step.key.kind:
            case Kind.TOPIC:
                await self._perform_topic(step, with_unread)
            case Kind.GROUP:
                await self._perform_group(step)
            case Kind.QUOTA:
                await self._perform_quota(step)
            case Kind.POLICY:
                await self._perform_policy(step)

    async def _group(self, name: str) -> Fields:
        try:
            described = await self._admin.groups.describe(name)
        except GroupNotFound:
            return _DEFAULTS
        _check_whole(described.unanswered)
        known = described.retry
        brokers = (await self._admin.cluster()).brokers
        masters = {each.broker_name for each in brokers if each.is_master} | known.keys()
        by_broker = {
            broker: _retry(known[broker]) if broker in known else _DEFAULTS for broker in masters
        }
        fields = {field for each in by_broker.values() for field in each}
        return {field: _common(field, by_broker) for field in sorted(fields)}

    async def _perform_topic(self, step: Step, with_unread: bool) -> None:
        (name,) = step.key.words
        if step.action is Action.DELETE:
            if not with_unread and (count := (await self.unread([name]))[name]):
                raise Failure(f"{count:,} unread messages have come to topic {name}; it is kept")
            await self._admin.topics.delete(name)
            return
        after = {each.field: each.after for each in step.changes}
        queues, ordered = after.get(QUEUES), after.get("ordered")
        permission = cast("Permission | None", after.get("permission"))
        attributes = {
            field.removeprefix(ATTRIBUTE): str(value or "")
            for field, value in after.items()
            if field.startswith(ATTRIBUTE)
        }
        if TYPE in after:
            attributes[MESSAGE_TYPE] = str(after[TYPE])
        if step.action is Action.CREATE:
            await self._admin.topics.create(
                name,
                queues=int(queues or 0),
                permission=permission or "rw",
                ordered=bool(ordered),
                attributes=attributes,
            )
            return
        await self._admin.topics.update(
            name,
            queues=None if queues is None else int(queues),
            permission=permission,
            ordered=None if ordered is None else bool(ordered),
            attributes=attributes,
        )

    async def _perform_quota(self, step: Step) -> None:
        word, name = (*step.key.words, "")[:2]
        kind = cast("SubjectKind", word)
        if step.action is Action.DELETE:
            await self._admin.quotas.delete(kind, name)
            return
        after = {each.field: each.after for each in step.changes}
        await self._admin.quotas.set(
            kind,
            name,
            {field: int(value) for field, value in after.items() if value is not None},
            to_default=[field for field, value in after.items() if value is None],
        )

    async def _perform_policy(self, step: Step) -> None:
        user, resource, *rest = step.key.words
        is_default = rest == [BY_DEFAULT]
        if step.action is Action.DELETE:
            await self._admin.policies.remove(user, resource, is_default=is_default)
            return
        sources = step.wanted["sources"]
        policy = Policy(
            user=user,
            resource=resource,
            actions=str(step.wanted["actions"]),
            decision="Deny" if step.wanted[DECISION] == "Deny" else "Allow",
            sources=tuple(str(sources).split(",")) if sources else (),
            is_default=is_default,
        )
        await self._admin.policies.put(policy)

    async def _perform_group(self, step: Step) -> None:
        after = {each.field: each.after for each in step.changes}
        retries, ordered = after.get("retriesMax"), after.get("ordered")
        # A back-off is set as a whole; a file need not have one.
        kind = step.wanted["backOff"] if after.keys() & _BACK_OFF else None
        back_off = None
        if kind == EXPONENTIAL:
            back_off = BackOff(
                initial_ms=_int(step.wanted["initialMs"]),
                max_ms=_int(step.wanted["longestMs"]),
                multiplier=_int(step.wanted["multiplier"]),
            )
        await self._admin.groups.configure(
            step.key.words[0],
            retries_max=None if retries is None else int(retries),
            back_off=back_off,
            by_delay_levels=kind is not None and kind != EXPONENTIAL,
            ordered=None if ordered is None else bool(ordered),
        )


def _lags(group: Group, topic: str) -> dict[MessageQueue, int] | None:
    """Of the queues of the topic that the group has been at; None: it does not read the topic."""
    lags = {each.queue: each.lag for each in group.queues if each.queue.topic == topic}
    return lags if lags or topic in group.topics else None


def _topic(topic: Topic) -> Fields:
    others = {key: value for key, value in topic.attributes.items() if key != MESSAGE_TYPE}
    return {
        QUEUES: topic.queues,
        "permission": topic.permission,
        TYPE: topic_type(topic.attributes),
        "ordered": topic.ordered,
        **{ATTRIBUTE + key: value for key, value in others.items()},
    }


def _policy(policy: Policy) -> tuple[Key, Fields]:
    return policy_of(
        policies.Policy.parse(
            policy.user,
            policy.resource,
            policy.actions,
            policy.decision,
            sources=policy.sources,
            is_default=policy.is_default,
        )
    )


def _retry(settings: GroupRetry) -> Fields:
    fields: dict[str, Value] = {
        "retriesMax": settings.retries_max,
        "ordered": settings.ordered,
        "backOff": settings.kind,
    }
    if (told := settings.back_off) is not None:
        fields |= {"initialMs": told.initial_ms, "longestMs": told.max_ms}
        fields["multiplier"] = told.multiplier
    return fields


def _check_whole(unanswered: Sequence[str]) -> None:
    """Raises NoBrokerAvailable if a plan would be made from a part of what there is."""
    if unanswered:
        raise NoBrokerAvailable(
            f"{', '.join(unanswered)} does not answer, so what there is now is not known, and "
            "nothing was changed; see `aerobee cluster show`"
        )


def _common(field: str, by_broker: Mapping[str, Fields]) -> Value:
    """What all brokers have, or a text that no file can have."""
    values = {broker: fields.get(field) for broker, fields in by_broker.items()}
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{value} on {broker}" for broker, value in sorted(values.items()))


def _int(value: Value) -> int:
    assert isinstance(value, int)
    return value
