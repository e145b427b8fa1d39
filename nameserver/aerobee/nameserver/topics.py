"""Creates, changes and deletes topics, by compare-and-swap in etcd.

Owns: the rules for a topic's settings. Two nameservers that change one topic at the same time never
lose a change: one of them reads again. Each answer comes after this nameserver's own routes show
the change.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
from collections.abc import Collection, Mapping
from functools import partial

from aerobee.domain import names
from aerobee.domain.topic_attributes import check_topic_attributes, keep_ms
from aerobee.nameserver.compare_and_swap import Keep, Write, changed, revision_of
from aerobee.nameserver.config import TopicPolicy
from aerobee.nameserver.key_value_store import KeyValueStore
from aerobee.nameserver.key_values import Delete, KeyValue, Put
from aerobee.nameserver.placement import (
    added_to,
    grow_queues,
    leveled,
    place_queues,
    with_queues,
    without_keys_on,
)
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.route_table import DELETED_TOPICS_MAX
from aerobee.nameserver.stored import (
    Keys,
    Topic,
    TopicDeletion,
    Unreadable,
    encode_deletion,
    encode_topic,
)
from aerobee.nameserver.topic_limits import TopicLimits
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    Busy,
    IllegalName,
    InvalidArgument,
    NoBrokerAvailable,
    TopicExists,
    TopicNotFound,
)

PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
PERM_DEFAULT = PERM_READ | PERM_WRITE
VALUE_BYTES_MAX = 64 * 1024
ATTRIBUTES_BYTES_MAX = 1_024
"""Per topic: all topics of a cluster must fit into one answer."""
_ROUTES_TIMEOUT_S = 2.0
_FORGOTTEN_AT_ONCE = 10
_NAMED_MAX = 3
_HOUR_MS = 3_600_000


class Topics:
    """The topics of one cluster."""

    def __init__(
        self, etcd: KeyValueStore, keys: Keys, cache: RouteCache, policy: TopicPolicy, clock: Clock
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._cache = cache
        self._policy = policy
        self._limits = TopicLimits(policy, clock)
        self._clock = clock

    async def create(
        self,
        name: str,
        *,
        queues: int = 0,
        perm: int = 0,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        queues_by_broker: Mapping[str, int] | None = None,
        automatic: bool = False,
    ) -> Topic:
        """A new topic with `queues` in total (0: the default) on the live replica sets, or with
        `queues_by_broker` only on those.

        Raises:
            IllegalName, InvalidArgument, TopicExists, NoBrokerAvailable, RegistryUnavailable.
            LimitReached: the cluster has its maximum of topics or queues.
            Busy: it is created `automatic`ally, and too many were created just now; or a topic of
            this
                name was deleted, and not all masters know of that yet.
        """
        topic = self._new(
            name,
            queues=queues,
            perm=perm,
            order=order,
            attributes=attributes,
            queues_by_broker=queues_by_broker,
        )
        tried: int | None = None

        async def read_deletion() -> int:
            """As this nameserver's routes have it; after a lost attempt, as etcd has it."""
            nonlocal tried
            deletion = await self._last_deletion(name, is_cached=tried is None)
            if deletion == tried:
                raise TopicExists(
                    f"topic {name!r} already exists; update it, or choose another name"
                )
            tried = deletion
            await self._until_masters_know(name, deletion)
            return deletion

        def decide(deletion: int) -> Write[Topic]:
            expected = {self._keys.topic(name): 0, self._keys.deletion(name): deletion}
            return self._put(topic, expected)

        with self._limits.creating(topic, self._cache.table, automatic=automatic):
            written = await changed(self._etcd, read_deletion, decide, what=_topic_name(name))
            return await self._shown(*written)

    def planned(self, name: str) -> Topic:
        """What `create_missing` would create now; nothing is created.

        Raises:
            IllegalName, NoBrokerAvailable, LimitReached: as `create`.
        """
        topic = self._new(name)
        self._limits.check_room(topic, self._cache.table, automatic=True)
        return topic

    def _new(
        self,
        name: str,
        *,
        queues: int = 0,
        perm: int = 0,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        queues_by_broker: Mapping[str, int] | None = None,
    ) -> Topic:
        _check_name(name)
        _check_perm(perm or PERM_DEFAULT)
        self._check_attributes(attributes or {})
        _check_size(attributes or {})
        return Topic(
            name,
            perm=perm or PERM_DEFAULT,
            order=order,
            attributes={key: value for key, value in (attributes or {}).items() if value},
            queues_by_broker=self._chosen(Topic(name), queues_by_broker)
            if queues_by_broker
            else self._placed(name, queues),
        )

    def _placed(self, name: str, queues: int) -> dict[str, int]:
        """Where the queues of a new topic are; 0: as many as by default."""
        replica_sets = self._taking_messages(self._replica_sets_for(name))
        total = queues or min(
            self._policy.default_queues_per_group * len(replica_sets), self._policy.queues_max
        )
        self._check_queues(total)
        return place_queues(name, total, replica_sets)

    def _chosen(self, topic: Topic, wanted: Mapping[str, int]) -> dict[str, int]:
        """The topic's queues with as many on some replica sets as wanted there.

        Raises InvalidArgument: they would be fewer, or it is retired from one; NoBrokerAvailable.
        """
        queues = {**topic.queues_by_broker, **wanted}
        for name, count in sorted(wanted.items()):
            before = topic.queues_by_broker.get(name, 0)
            if count < max(1, before):
                raise InvalidArgument(
                    f"topic {topic.name!r} has {before} queues on broker group {name} and cannot "
                    f"have {count}: queues are only added; see `aerobee topic spread --help`"
                )
            if count > before and name in topic.retired:
                raise InvalidArgument(
                    f"topic {topic.name!r} was retired from broker group {name}, and gets no more "
                    "queues there: choose another"
                )
            if count > before and name not in self._cache.table.replica_sets_for_queues():
                raise NoBrokerAvailable(
                    f"topic {topic.name!r} gets no queues on broker group {name}, because there is "
                    "none that is open and has a master: see `aerobee cluster show`"
                )
        self._check_queues(sum(queues.values()))
        self._check_taking_messages(topic.name, added_to(topic, queues))
        return dict(sorted(queues.items()))

    async def create_missing(self, name: str) -> Topic:
        """The topic, created with default settings if it does not exist."""
        try:
            return await self.create(name, automatic=True)
        except TopicExists:
            topic = self._topic(name, await self._etcd.get(self._keys.topic(name)))
            await self._cache.wait_version(topic.revision, _ROUTES_TIMEOUT_S)
            return topic

    async def update(
        self,
        name: str,
        *,
        queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        queues_by_broker: Mapping[str, int] | None = None,
    ) -> Topic:
        """Change what is given and return the topic; an attribute set to "" is removed. Replica
        sets in `queues_by_broker` get as many queues as it says, the others keep theirs.

        Raises:
            TopicNotFound, InvalidArgument, LimitReached, NoBrokerAvailable, RegistryUnavailable.
        """
        if perm is not None:
            _check_perm(perm)
        self._check_attributes(attributes or {})
        key = self._keys.topic(name)

        def decide(entry: KeyValue | None) -> Write[Topic]:
            topic = self._topic(name, entry)
            if queues_by_broker:
                grown = self._allowed(
                    topic, with_queues(topic, self._chosen(topic, queues_by_broker))
                )
            else:
                grown = self._with_queues(topic, topic.queues if queues is None else queues)
            merged = dict(topic.attributes) | dict(attributes or {})
            updated = dataclasses.replace(
                grown,
                perm=topic.perm if perm is None else perm,
                order=topic.order if order is None else order,
                attributes={key: value for key, value in merged.items() if value},
            )
            if attributes:
                _check_size(updated.attributes)
            return self._put(updated, {key: topic.revision})

        read = partial(self._etcd.get, key)
        written = await changed(self._etcd, read, decide, what=_topic_name(name))
        return await self._shown(*written)

    async def delete(self, name: str) -> int:
        """Remove the topic; returns the revision of the removal. The deletion itself is recorded in
        etcd, so that brokers that learn of it later also drop what was sent to the topic before.

        Raises:
            TopicNotFound, IllegalName, RegistryUnavailable.
        """
        _check_name(name)
        key, deletion_key = self._keys.topic(name), self._keys.deletion(name)

        async def read() -> tuple[KeyValue | None, KeyValue | None]:
            return await self._etcd.get(key), await self._etcd.get(deletion_key)

        def decide(seen: tuple[KeyValue | None, KeyValue | None]) -> Write[None]:
            entry, before = seen
            if entry is None:
                raise _not_found(name)
            deletion = TopicDeletion(name, max(self._clock.now_ms(), self._after(before)))
            return Write(
                None,
                {key: entry.revision, deletion_key: revision_of(before)},
                [
                    Delete(key),
                    Put(deletion_key, encode_deletion(deletion)),
                    *(Delete(self._keys.deletion(old)) for old in self._forgotten(name)),
                ],
            )

        _, revision = await changed(self._etcd, read, decide, what=_topic_name(name))
        await self._cache.wait_version(revision, _ROUTES_TIMEOUT_S)
        return revision

    async def take_queues(self, name: str, broker_name: str) -> Topic | None:
        """Remove the topic's queues on a replica set, whatever they hold; None: it has none there,
        or is gone.

        Raises RegistryUnavailable; InvalidArgument: the topic's value is damaged.
        """
        key = self._keys.topic(name)

        def decide(entry: KeyValue | None) -> Write[Topic | None] | Keep[None]:
            if entry is None:
                return Keep(None)
            topic = self._topic(name, entry)
            if broker_name not in topic.queues_by_broker:
                return Keep(None)
            kept = {k: v for k, v in topic.queues_by_broker.items() if k != broker_name}
            if not kept:
                raise InvalidArgument(
                    f"topic {name!r} has queues only on {broker_name}: give it queues elsewhere "
                    f"with `aerobee topic update {name} --queues N`, or delete it"
                )
            is_retired = broker_name in topic.retired
            remaining = dataclasses.replace(
                topic,
                queues_by_broker=kept,
                key_order=tuple(run for run in topic.key_order if run.broker_name != broker_name),
                retired={**topic.retired, **({broker_name: ()} if is_retired else {})},
            )
            return self._put(remaining, {key: topic.revision})

        read = partial(self._etcd.get, key)
        found, revision = await changed(self._etcd, read, decide, what=_topic_name(name))
        return None if found is None else await self._shown(found, revision)

    async def spread(
        self, name: str, *, retire: Collection[str] = (), preview: bool = False
    ) -> tuple[Topic, Topic]:
        """The topic before, and with as many queues on each live replica set as on the one that has
        most; or, to `retire` it from some sets, with a successor elsewhere for each of its queues
        there, which take no new messages from then on. With `preview`, nothing is changed.

        Raises:
            TopicNotFound, InvalidArgument, LimitReached, NoBrokerAvailable, RegistryUnavailable.
        """
        key = self._keys.topic(name)
        before: Topic | None = None

        def decide(entry: KeyValue | None) -> Write[Topic] | Keep[Topic]:
            nonlocal before
            before = topic = self._topic(name, entry)
            after = self._retired(topic, retire) if retire else self._leveled(topic)
            if preview or after == topic:
                return Keep(after)
            return self._put(after, {key: topic.revision})

        read = partial(self._etcd.get, key)
        after, revision = await changed(self._etcd, read, decide, what=_topic_name(name))
        assert before is not None, "the change was decided on what was read"
        if preview or after == before:
            return before, after
        return before, await self._shown(after, revision)

    async def remove_retired(self, name: str, broker_name: str) -> Topic:
        """Take the topic's retired queues on a replica set out of it, whatever they hold.

        Raises:
            TopicNotFound, InvalidArgument, RegistryUnavailable.
        """
        topic = self._topic(name, await self._etcd.get(self._keys.topic(name)))
        if broker_name not in topic.retired:
            raise InvalidArgument(
                f"topic {name!r} is not retired from {broker_name}: retire it with `aerobee topic "
                f"spread {name} --retire {broker_name}` first"
            )
        return await self.take_queues(name, broker_name) or topic

    async def _last_deletion(self, name: str, *, is_cached: bool) -> int:
        """The revision of the name's last deletion, as this nameserver's routes or etcd have it; 0
        if it was never deleted."""
        if is_cached:
            known = self._cache.table.deletions.get(name)
            return 0 if known is None else known.revision
        return revision_of(await self._etcd.get(self._keys.deletion(name)))

    async def _until_masters_know(self, name: str, deletion: int) -> None:
        """Returns once every live master knows of the name's last deletion, by its revision; 0:
        there was none. A master that does not know would store what is sent to the new topic with
        the former one's messages, and delete both.

        Raises Busy: it takes too long.
        """
        if deletion == 0:
            return
        cache = self._cache

        def late() -> list[str]:
            return [
                f"{each.key.broker_name}/{each.key.broker_id}"
                for each in cache.table.brokers.values()
                if each.topics_known is not None
                and each.topics_known < deletion
                and cache.table.is_master(each)
            ]

        def is_known() -> bool:
            return cache.version >= deletion and not late()

        if not await cache.changed.wait_until(is_known, _ROUTES_TIMEOUT_S):
            who = ", ".join(late()[:_NAMED_MAX]) or "this nameserver"
            raise Busy(
                f"topic {name!r} was deleted a moment ago, and {who} has not learned of it yet; "
                "try again in a moment"
            )

    def _after(self, before: KeyValue | None) -> int:
        """A time after the last deletion of the name; 0 if no deletion can be read."""
        with contextlib.suppress(Unreadable):
            deletion = None if before is None else self._keys.decode(before)
            if isinstance(deletion, TopicDeletion):
                return deletion.at_ms + 1
        return 0

    def _forgotten(self, name: str) -> list[str]:
        """The oldest deletions, if adding one of `name` makes too many."""
        deletions = [each for each in self._cache.table.deletions.values() if each.name != name]
        excess = len(deletions) + 1 - DELETED_TOPICS_MAX
        if excess <= 0:
            return []
        oldest = heapq.nsmallest(
            min(excess, _FORGOTTEN_AT_ONCE), deletions, key=lambda each: (each.at_ms, each.name)
        )
        return [each.name for each in oldest]

    def _topic(self, name: str, entry: KeyValue | None) -> Topic:
        """Raises TopicNotFound; InvalidArgument: it is damaged."""
        if entry is None:
            raise _not_found(name)
        try:
            topic = self._keys.decode(entry)
        except Unreadable as error:
            raise InvalidArgument(
                f"topic {name!r} is damaged in etcd ({error}); delete it and create it again"
            ) from error
        assert isinstance(topic, Topic), "a topic key holds a topic"
        return topic

    def _put(self, topic: Topic, expected: Mapping[str, int]) -> Write[Topic]:
        """Raises InvalidArgument: it is too large."""
        value = encode_topic(topic)
        if len(value) > VALUE_BYTES_MAX:
            raise InvalidArgument(
                f"the settings of topic {topic.name!r} take {len(value)} bytes; at most "
                f"{VALUE_BYTES_MAX} are allowed: give it fewer or shorter attributes"
            )
        return Write(topic, expected, [Put(self._keys.topic(topic.name), value)])

    async def _shown(self, topic: Topic, revision: int) -> Topic:
        """The topic as written, once this nameserver's routes show it."""
        await self._cache.wait_version(revision, _ROUTES_TIMEOUT_S)
        return dataclasses.replace(topic, revision=revision)

    def _with_queues(self, topic: Topic, queues: int) -> Topic:
        if queues == topic.queues:
            return topic
        if queues < topic.queues:
            raise InvalidArgument(
                f"topic {topic.name!r} has {topic.queues} queues and cannot shrink to {queues}: "
                "messages would be lost; create another topic instead"
            )
        self._check_queues(queues)
        replica_sets = self._replica_sets_for(topic.name, topic.retired)
        grown = grow_queues(topic.name, topic.queues_by_broker, queues, replica_sets)
        return self._allowed(topic, with_queues(topic, grown))

    def _leveled(self, topic: Topic) -> Topic:
        replica_sets = self._taking_messages(self._replica_sets_for(topic.name, topic.retired))
        queues = leveled(topic, replica_sets, queues_max=self._policy.queues_max)
        return self._allowed(topic, with_queues(topic, queues))

    def _retired(self, topic: Topic, names: Collection[str]) -> Topic:
        """Raises InvalidArgument: it has no queues there; NoBrokerAvailable, LimitReached."""
        unknown = sorted(set(names) - topic.queues_by_broker.keys() - topic.retired.keys())
        if unknown:
            raise InvalidArgument(
                f"topic {topic.name!r} has no queues on {', '.join(unknown)}: see `aerobee topic "
                f"show {topic.name}`"
            )
        if not set(names) - topic.retired.keys():
            return topic
        replica_sets = self._taking_messages(
            self._replica_sets_for(topic.name, {*topic.retired, *names})
        )
        after = without_keys_on(topic, names, replica_sets)
        self._check_queues(after.queues)
        return self._allowed(topic, after)

    def _allowed(self, topic: Topic, after: Topic) -> Topic:
        """Raises NoBrokerAvailable, LimitReached."""
        added = added_to(topic, after.queues_by_broker)
        self._check_taking_messages(topic.name, added)
        self._limits.check_queues(self._cache.table, added)
        return after

    def _replica_sets_for(self, name: str, without: Collection[str] = ()) -> tuple[str, ...]:
        found = self._cache.table.replica_sets_for_queues()
        replica_sets = tuple(each for each in found if each not in without)
        if not replica_sets:
            others = " other than those that the topic is retired from" if without else ""
            raise NoBrokerAvailable(
                f"topic {name!r} cannot be placed: no open broker group{others} has a master; "
                "start one"
            )
        return replica_sets

    def _taking_messages(self, replica_sets: tuple[str, ...]) -> tuple[str, ...]:
        """Those with enough replicas in sync; all of them if none has."""
        short = self._cache.table.short_of_replicas()
        return tuple(one for one in replica_sets if one not in short) or replica_sets

    def _check_taking_messages(self, topic: str, added: Mapping[str, int]) -> None:
        """Queues never move, so they are not given to other replica sets instead.

        Raises NoBrokerAvailable: messages in some of the `added` queues would be refused.
        """
        short = self._cache.table.short_of_replicas()
        if who := [name for name, count in sorted(added.items()) if count and name in short]:
            named = ", ".join(f"{name} ({short[name]})" for name in who)
            raise NoBrokerAvailable(
                f"topic {topic!r} gets no queues: broker group {named} takes no messages, because "
                "too few of its replicas are in sync; start more replicas, or lower "
                "replication.min_insync_replicas, and try again, or close the group first"
            )

    def _check_attributes(self, attributes: Mapping[str, str]) -> None:
        """Raises InvalidArgument."""
        check_topic_attributes(attributes)
        kept_ms, log_kept = keep_ms(attributes), self._cache.table.log_kept_hours()
        if kept_ms is not None and log_kept is not None and kept_ms > log_kept[0] * _HOUR_MS:
            raise InvalidArgument(
                f"the topic cannot keep its messages for {kept_ms / _HOUR_MS:g} h: the log of "
                f"broker group {log_kept[1]} keeps them for {log_kept[0]} h "
                "(store.retention.file_reserved_hours of the brokers); ask for at most that, or "
                "raise it there"
            )

    def _check_queues(self, queues: int) -> None:
        if not 0 < queues <= self._policy.queues_max:
            raise InvalidArgument(
                f"a topic has 1 to {self._policy.queues_max} queues, not {queues}"
            )


def _check_name(name: str) -> None:
    names.check_topic_name(name)
    if names.is_system_topic(name):
        raise IllegalName(f"topic name {name!r} is reserved for the system; choose another name")


def _check_perm(perm: int) -> None:
    if not 0 < perm <= PERM_READ | PERM_WRITE | PERM_INHERIT:
        raise InvalidArgument(f"perm must be a sum of 4 (read), 2 (write), 1 (inherit), not {perm}")


def _topic_name(name: str) -> str:
    return f"topic {name!r}"


def _not_found(name: str) -> TopicNotFound:
    return TopicNotFound(f"there is no topic {name!r}; create it, or check the spelling")


def _check_size(attributes: Mapping[str, str]) -> None:
    size = sum(len(name.encode()) + len(value.encode()) for name, value in attributes.items())
    if size > ATTRIBUTES_BYTES_MAX:
        raise InvalidArgument(
            f"the topic's attributes would take {size} bytes; at most {ATTRIBUTES_BYTES_MAX} are "
            "allowed: shorten or remove some"
        )
