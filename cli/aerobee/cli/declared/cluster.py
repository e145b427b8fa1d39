"""A cluster's side of a plan: reads what there is, and does one step after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence

from aerobee.access.policies import Policy
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
from aerobee.client_core import Admin, ClusterConnection, GroupState, MessageQueue, Offsets, Topics
from aerobee.client_core.access import Access
from aerobee.cluster_view.route import PERM_READ, PERM_WRITE
from aerobee.runtime.errors import GroupNotFound
from aerobee.runtime.names import is_retry_topic, is_system_topic
from aerobee.runtime.topic_attributes import MESSAGE_TYPE, topic_type
from aerobee.store_format.retry_records import RETRIES_MAX
from aerobee.v1 import access_pb2, broker_pb2, common_pb2

_BACK_OFF = frozenset({"backOff", "initialMs", "longestMs", "multiplier"})
_DEFAULTS: Fields = {"retriesMax": RETRIES_MAX, "ordered": False, "backOff": "levels"}
"""Of a group that a broker does not know."""


class DeclaredCluster:
    """Over one connection."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._topics = Topics(connection)
        self._admin = Admin(connection)
        self._access = Access(connection)

    async def state(self, wish: Wish) -> State:
        """What the cluster has of the sections of `wish`. Costs one call for topics, and one to
        each master for each group. Raises what these calls do; nothing has changed."""
        things: dict[Key, Fields] = {}
        if Kind.TOPIC in wish.sections:
            for topic in await self._topics.list():
                if not is_system_topic(topic.name) and not is_retry_topic(topic.name):
                    things[Key(Kind.TOPIC, (topic.name,))] = _topic(topic)
        groups = [key for key in wish.things if key.kind is Kind.GROUP]
        masters = [each.broker_name for each in await self._admin.masters()] if groups else []
        for key in groups:
            things[key] = await self._group(key.words[0], masters)
        users: frozenset[str] = frozenset()
        if wish.sections & {Kind.QUOTA, Kind.POLICY}:
            users = frozenset(user.name for user in await self._access.users())
        if Kind.QUOTA in wish.sections:
            for quota in (await self._access.quotas()).quotas:
                words = (quota.kind, quota.name) if quota.name else (quota.kind,)
                things[Key(Kind.QUOTA, words)] = dict(quota.limits)
        if Kind.POLICY in wish.sections:
            things |= dict(_policy(each) for each in await self._access.policies())
        return State(things, users)

    async def unread(self, topics: Collection[str]) -> dict[str, int]:
        """How many messages of each topic some group that reads it has not read; all of a topic
        that no group reads. Asks for every group of the cluster."""
        if not topics:
            return {}
        groups = []
        for group in await self._admin.list_groups():
            with contextlib.suppress(GroupNotFound):  # it has gone since
                groups.append(await self._admin.describe_group(group))
        found = {}
        for topic in topics:
            readers = [lags for each in groups if (lags := _lags(each, topic)) is not None]
            route = await self._connection.routes.route(topic)
            bounds = await Offsets(self._connection).bounds(route.queues, of_master=True)
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
                settings = _retry_settings(step)
                await self._admin.configure_group(step.key.words[0], settings)
            case Kind.QUOTA:
                await self._perform_quota(step)
            case Kind.POLICY:
                await self._perform_policy(step)

    async def _group(self, name: str, masters: Sequence[str]) -> Fields:
        try:
            known = (await self._admin.describe_group(name)).retry
        except GroupNotFound:
            return _DEFAULTS
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
            await self._topics.delete(name)
            return
        after = {each.field: each.after for each in step.changes}
        queues, permission, order = after.get(QUEUES), after.get("permission"), after.get("ordered")
        attributes = {
            field.removeprefix(ATTRIBUTE): str(value or "")
            for field, value in after.items()
            if field.startswith(ATTRIBUTE)
        }
        if TYPE in after:
            attributes[MESSAGE_TYPE] = str(after[TYPE])
        perm = _perm(str(permission)) if permission is not None else None
        if step.action is Action.CREATE:
            await self._topics.create(
                name,
                queues=int(queues or 0),
                perm=perm or 0,
                order=bool(order),
                attributes=attributes,
            )
            return
        await self._topics.update(
            name,
            queues=None if queues is None else int(queues),
            perm=perm,
            order=None if order is None else bool(order),
            attributes=attributes,
        )

    async def _perform_quota(self, step: Step) -> None:
        kind, name = (*step.key.words, "")[:2]
        if step.action is Action.DELETE:
            await self._access.delete_quota(kind, name)
            return
        after = {each.field: each.after for each in step.changes}
        await self._access.set_quota(
            kind,
            name,
            {field: int(value) for field, value in after.items() if value is not None},
            [field for field, value in after.items() if value is None],
        )

    async def _perform_policy(self, step: Step) -> None:
        user, resource, *rest = step.key.words
        is_default = rest == [BY_DEFAULT]
        if step.action is Action.DELETE:
            await self._access.remove_policy(user, resource, is_default=is_default)
            return
        sources = step.wanted["sources"]
        policy = access_pb2.AccessPolicy(
            user=user,
            resource=resource,
            actions=str(step.wanted["actions"]),
            decision=str(step.wanted[DECISION]),
            sources=str(sources).split(",") if sources else (),
            default=is_default,
        )
        await self._access.put_policy(policy)


def _lags(group: GroupState, topic: str) -> dict[MessageQueue, int] | None:
    """Of the queues of the topic that the group has been at; None: it does not read the topic."""
    lags = {each.queue: each.lag for each in group.queues if each.queue.topic == topic}
    subscribed = {each.topic for member in group.members for each in member.subscriptions}
    return lags if lags or topic in subscribed else None


def _topic(topic: common_pb2.TopicConfig) -> Fields:
    others = {key: value for key, value in topic.attributes.items() if key != MESSAGE_TYPE}
    return {
        QUEUES: sum(topic.queues_by_broker.values()),
        "permission": "r" * bool(topic.perm & PERM_READ) + "w" * bool(topic.perm & PERM_WRITE),
        TYPE: topic_type(topic.attributes),
        "ordered": topic.order,
        **{ATTRIBUTE + key: value for key, value in others.items()},
    }


def _perm(permission: str) -> int:
    return PERM_READ * ("r" in permission) + PERM_WRITE * ("w" in permission)


def _policy(policy: access_pb2.AccessPolicy) -> tuple[Key, Fields]:
    return policy_of(
        Policy.parse(
            policy.user,
            policy.resource,
            policy.actions,
            policy.decision,
            sources=tuple(policy.sources),
            is_default=policy.default,
        )
    )


def _retry(settings: broker_pb2.RetrySettings) -> Fields:
    kind = settings.WhichOneof("back_off") or "levels"
    fields: dict[str, Value] = {
        "retriesMax": settings.retries_max,
        "ordered": settings.ordered,
        "backOff": kind,
    }
    if kind == EXPONENTIAL:
        told = settings.exponential
        fields |= {"initialMs": told.initial_ms, "longestMs": told.max_ms}
        fields["multiplier"] = told.multiplier
    return fields


def _common(field: str, by_broker: Mapping[str, Fields]) -> Value:
    """What all brokers have, or a text that no file can have."""
    values = {broker: fields.get(field) for broker, fields in by_broker.items()}
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{value} on {broker}" for broker, value in sorted(values.items()))


def _retry_settings(step: Step) -> broker_pb2.RetrySettings:
    after = {each.field: each.after for each in step.changes}
    retries, ordered = after.get("retriesMax"), after.get("ordered")
    settings = broker_pb2.RetrySettings(
        retries_max=None if retries is None else int(retries),
        ordered=None if ordered is None else bool(ordered),
    )
    if not after.keys() & _BACK_OFF:
        return settings
    # A back-off is set as a whole.
    if step.wanted["backOff"] == EXPONENTIAL:
        settings.exponential.CopyFrom(
            broker_pb2.ExponentialBackOff(
                initial_ms=_int(step.wanted["initialMs"]),
                max_ms=_int(step.wanted["longestMs"]),
                multiplier=_int(step.wanted["multiplier"]),
            )
        )
    else:
        settings.levels.SetInParent()
    return settings


def _int(value: Value) -> int:
    assert isinstance(value, int)
    return value
