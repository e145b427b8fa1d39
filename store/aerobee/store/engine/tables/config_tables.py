"""topics.json and subscriptionGroup.json in memory; beside them the table of consumer offsets.

Owns: the content of these tables, and its form in Apache's files. No I/O: the owner loads bytes,
calls the tables on the loop, and passes `snapshot_bytes` to `replace_atomically` in a thread.

Invariant: members that an Apache broker wrote and we do not use are written back unchanged; a
snapshot after a change has a higher `dataVersion`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from aerobee.store.engine.tables.config_document import (
    ConfigDocument,
    named_members,
    parse_document,
    take_attributes,
    take_member,
    take_object,
)
from aerobee.store.engine.tables.consumer_offset_table import (
    CONSUMER_OFFSETS_PATH,
    ConsumerOffsetTable,
)
from aerobee.store.format.json_config import JsonValue, join_members, render_text

__all__ = [
    "CONSUMER_OFFSETS_PATH",
    "SUBSCRIPTION_GROUPS_PATH",
    "TOPICS_PATH",
    "ConsumerOffsetTable",
    "SubscriptionGroupConfig",
    "SubscriptionGroupTable",
    "TopicConfig",
    "TopicTable",
]

TOPICS_PATH = "config/topics.json"
SUBSCRIPTION_GROUPS_PATH = "config/subscriptionGroup.json"

PERM_WRITE = 2
PERM_READ = 4
_ENDING_MEMBER = "endingTopics"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic as this broker serves it. Field meanings are Apache's.

    `revision` is the metadata revision that announced it, 0 for topics unknown to nameservers;
    `unknown` are members of the file's entry that we do not use.
    """

    name: str
    read_queue_count: int = 16
    write_queue_count: int = 16
    perm: int = PERM_READ | PERM_WRITE
    order: bool = False
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    revision: int = 0
    unknown: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def is_retired(self) -> bool:
        """Whether its queues are read to the end and take no new messages of clients."""
        return self.write_queue_count == 0 < self.read_queue_count

    @property
    def has_batch_queues(self) -> bool:
        """Whether its messages are in Apache's batch consume queues, which are only kept."""
        return self.attributes.get("queue.type") == "BatchCQ"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupConfig:
    """What a consumer group may do on this broker. Field meanings are Apache's, except
    `last_used_ms`: when the group is known to have been used last, Unix ms; 0: unknown."""

    name: str
    consume_enabled: bool = True
    consume_from_min_enabled: bool = True
    consume_broadcast_enabled: bool = True
    consume_orderly: bool = False
    retry_queue_count: int = 1
    retry_times_max: int = 16
    last_used_ms: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, JsonValue] = field(default_factory=dict)


class Named(Protocol):
    """A configuration that is identified by its name."""

    @property
    def name(self) -> str: ...


Config = TypeVar("Config", bound=Named)


class NamedConfigs(ABC, Generic[Config]):
    """Configurations by name, with the rest of their file: the base of both tables."""

    def __init__(self, configs: Mapping[str, Config] | None = None) -> None:
        self._configs = dict(configs or {})
        self._document = ConfigDocument()
        # Rendered for the file; a table of thousands is written for each that changes.
        self._rendered: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._configs)

    def __contains__(self, name: str) -> bool:
        return name in self._configs

    def __iter__(self) -> Iterator[str]:
        """The names, unordered."""
        return iter(self._configs)

    def get(self, name: str) -> Config | None:
        return self._configs.get(name)

    def names(self) -> list[str]:
        return sorted(self._configs)

    def configs(self) -> list[Config]:
        """All, ordered by name."""
        return [self._configs[name] for name in sorted(self._configs)]

    def put(self, config: Config) -> bool:
        """Add or replace; False if an equal one was there."""
        if self._configs.get(config.name) == config:
            return False
        self._configs[config.name] = config
        self._rendered.pop(config.name, None)
        self._document.changes += 1
        return True

    def remove(self, name: str) -> bool:
        """False if there was none."""
        if self._configs.pop(name, None) is None:
            return False
        self._rendered.pop(name, None)
        self._document.changes += 1
        return True

    def _render(self, bean_of: Callable[[Config], dict[str, object]]) -> str:
        """All configurations as one member of the file; only those that have changed since the last
        time are rendered."""
        rendered = self._rendered
        for name, config in self._configs.items():
            if name not in rendered:
                rendered[name] = render_text(bean_of(config), depth=2)
        return join_members(rendered, depth=1)

    @property
    def changes(self) -> int:
        """How often the table has changed since it was created; savers compare it."""
        return self._document.changes

    def prepare(self) -> Iterator[None]:
        """Nothing to do; `snapshot` does it all."""
        return iter(())

    def snapshot(self, now_ms: int) -> Callable[[], bytes]:
        """The whole file as of now; already rendered on return."""
        data = self.snapshot_bytes(now_ms)
        return lambda: data

    @abstractmethod
    def snapshot_bytes(self, now_ms: int) -> bytes:
        """The whole file as of now."""


class TopicTable(NamedConfigs[TopicConfig]):
    """topics.json in memory.

    `ending`: deleted topics whose ends are not known to be in the log yet, and when they were
    deleted, Unix ms. A new topic of that name may already exist here: it is served once the end is
    in the log.
    """

    def __init__(self, configs: Mapping[str, TopicConfig] | None = None) -> None:
        super().__init__(configs)
        self.ending: dict[str, int] = {}
        self.on_put: Callable[[str], None] = lambda name: None
        """Called with the name of a topic that is new or has changed."""

    def put(self, config: TopicConfig) -> bool:
        is_news = super().put(config)
        if is_news:
            self.on_put(config.name)
        return is_news

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The table in a file's bytes. Raises ValueError for anything else."""
        document = parse_document(data)
        beans = take_object(document, "topicConfigTable")
        table = cls({name: _topic_from_bean(name, bean) for name, bean in beans.items()})
        ending = take_object(document, _ENDING_MEMBER)
        table.ending = {name: at for name, at in ending.items() if isinstance(at, int)}
        table._document = ConfigDocument.load(document)
        return table

    def begin_ending(self, name: str, deleted_at_ms: int) -> None:
        """A topic of this name was deleted, and its end is not known to be in the log yet."""
        if deleted_at_ms > self.ending.get(name, 0):
            self.ending[name] = deleted_at_ms
            self._document.changes += 1

    def has_ended(self, name: str, deleted_at_ms: int) -> None:
        """The end is in the log, permanently."""
        if self.ending.get(name, deleted_at_ms + 1) <= deleted_at_ms:
            del self.ending[name]
            self._document.changes += 1

    @property
    def metadata_revision(self) -> int:
        """The metadata revision up to which this table has the nameservers' announcements."""
        revision = self._document.unknown.get("metadataRevision", 0)
        return revision if isinstance(revision, int) else 0

    @metadata_revision.setter
    def metadata_revision(self, revision: int) -> None:
        if revision != self.metadata_revision:
            self._document.unknown["metadataRevision"] = revision
            self._document.changes += 1

    @property
    def metadata_history(self) -> str:
        """Which etcd's history that revision counts in, as nameservers name it; empty: unknown."""
        history = self._document.unknown.get("metadataHistory", "")
        return history if isinstance(history, str) else ""

    @metadata_history.setter
    def metadata_history(self, history: str) -> None:
        if history != self.metadata_history:
            self._document.unknown["metadataHistory"] = history
            self._document.changes += 1

    def snapshot_bytes(self, now_ms: int) -> bytes:
        """The whole file as of now."""
        more = {_ENDING_MEMBER: render_text(self.ending, depth=1)} if self.ending else {}
        return self._document.render(now_ms, "topicConfigTable", self._render(topic_bean), more)


class SubscriptionGroupTable(NamedConfigs[SubscriptionGroupConfig]):
    """subscriptionGroup.json in memory."""

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The table in a file's bytes. Raises ValueError for anything else."""
        document = parse_document(data)
        beans = take_object(document, "subscriptionGroupTable")
        table = cls({name: _group_from_bean(name, bean) for name, bean in beans.items()})
        table._document = ConfigDocument.load(document)
        return table

    def snapshot_bytes(self, now_ms: int) -> bytes:
        """The whole file as of now."""
        self._document.unknown.setdefault("forbiddenTable", {})
        return self._document.render(now_ms, "subscriptionGroupTable", self._render(_group_bean))


def _topic_from_bean(name: str, value: JsonValue) -> TopicConfig:
    bean = _bean(name, value, "topicName")
    return TopicConfig(
        name=name,
        read_queue_count=take_member(bean, "readQueueNums", 16),
        write_queue_count=take_member(bean, "writeQueueNums", 16),
        perm=take_member(bean, "perm", PERM_READ | PERM_WRITE),
        order=take_member(bean, "order", False),
        filter_type=take_member(bean, "topicFilterType", "SINGLE_TAG"),
        sys_flag=take_member(bean, "topicSysFlag", 0),
        attributes=take_attributes(bean),
        revision=take_member(bean, "metadataRevision", 0),
        unknown=bean,
    )


def topic_bean(config: TopicConfig) -> dict[str, object]:
    bean: dict[str, object] = {
        **config.unknown,
        "attributes": dict(config.attributes),
        "order": config.order,
        "perm": config.perm,
        "readQueueNums": config.read_queue_count,
        "topicFilterType": config.filter_type,
        "topicName": config.name,
        "topicSysFlag": config.sys_flag,
        "writeQueueNums": config.write_queue_count,
    }
    if config.revision:
        bean["metadataRevision"] = config.revision
    return bean


def _group_from_bean(name: str, value: JsonValue) -> SubscriptionGroupConfig:
    bean = _bean(name, value, "groupName")
    return SubscriptionGroupConfig(
        name=name,
        consume_enabled=take_member(bean, "consumeEnable", True),
        consume_from_min_enabled=take_member(bean, "consumeFromMinEnable", True),
        consume_broadcast_enabled=take_member(bean, "consumeBroadcastEnable", True),
        consume_orderly=take_member(bean, "consumeMessageOrderly", False),
        retry_queue_count=take_member(bean, "retryQueueNums", 1),
        retry_times_max=take_member(bean, "retryMaxTimes", 16),
        last_used_ms=take_member(bean, "lastUsedTimestamp", 0),
        attributes=take_attributes(bean),
        unknown=bean,
    )


def _group_bean(config: SubscriptionGroupConfig) -> dict[str, object]:
    bean: dict[str, object] = {
        "brokerId": 0,
        "consumeTimeoutMinute": 15,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "whichBrokerWhenConsumeSlowly": 1,
        **config.unknown,
        "attributes": dict(config.attributes),
        "consumeBroadcastEnable": config.consume_broadcast_enabled,
        "consumeEnable": config.consume_enabled,
        "consumeFromMinEnable": config.consume_from_min_enabled,
        "consumeMessageOrderly": config.consume_orderly,
        "groupName": config.name,
        "retryMaxTimes": config.retry_times_max,
        "retryQueueNums": config.retry_queue_count,
    }
    if config.last_used_ms:
        bean["lastUsedTimestamp"] = config.last_used_ms
    return bean


def _bean(name: str, value: JsonValue, name_member: str) -> dict[str, JsonValue]:
    """A table's entry as a fresh object, without the member that repeats its name."""
    bean = named_members(value, name)
    bean.pop(name_member, None)
    return bean
