"""A broker's metrics under the names that RocketMQ 5 gives them, so that its dashboards work.

Only converts values: the readings are arguments. Names, labels and units are RocketMQ's; unknown
values are left out, never reported as 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from aerobee.broker.groups.members import Member
from aerobee.broker.observe.metrics.lag import GroupLag
from aerobee.broker.observe.metrics.traffic import Incoming, Outgoing, Reader
from aerobee.broker.observe.stats import BrokerStatistics
from aerobee.broker.sending.acknowledged import MESSAGE_SIZES
from aerobee.broker.sending.guard import PERM_READ, PERM_WRITE
from aerobee.domain.names import RETRY_PREFIX, is_system_topic
from aerobee.runtime.metrics.families import (
    OTHER,
    AnyFamily,
    Family,
    HistogramFamily,
    counter,
    flag,
    gauge,
    one_gauge,
)
from aerobee.runtime.metrics.histogram import HistogramCounts

_IN = ("topic", "message_type", "is_system")
_CONSUMER = ("consumer_group", "topic", "is_retry", "is_system")
_STORAGE = ("storage_type", "storage_medium")


class IncomingFamilies:
    """What came in, topic by topic."""

    def __init__(self) -> None:
        self._messages = counter(
            "rocketmq_messages_in_total", "Messages stored and acknowledged.", *_IN
        )
        self._bytes = counter(
            "rocketmq_throughput_in_total", "Bytes of these messages' records.", *_IN
        )
        self._sizes = HistogramFamily(
            "rocketmq_message_size", "Sizes of these messages' records, in bytes.", _IN
        )

    def add(self, topic: str, message_type: str, counts: Incoming) -> None:
        labels = (topic, message_type, flag(is_system_topic(topic)))
        self._messages.add(counts.messages, *labels)
        self._bytes.add(counts.bytes, *labels)
        sizes = HistogramCounts(MESSAGE_SIZES, tuple(counts.sizes), counts.bytes)
        self._sizes.add(sizes, *labels)

    def families(self) -> list[AnyFamily]:
        return [self._messages, self._bytes, self._sizes]


class OutgoingFamilies:
    """What went out, reader by reader."""

    def __init__(self) -> None:
        self._messages = counter(
            "rocketmq_messages_out_total", "Messages sent to readers.", *_CONSUMER
        )
        self._bytes = counter(
            "rocketmq_throughput_out_total", "Bytes of these messages' records.", *_CONSUMER
        )

    def add(self, reader: Reader, counts: Outgoing) -> None:
        labels = _consumer_labels(reader.group, reader.topic)
        self._messages.add(counts.messages, *labels)
        self._bytes.add(counts.bytes, *labels)

    def families(self) -> list[AnyFamily]:
        return [self._messages, self._bytes]


def dead_letter_family(rows: Iterable[tuple[Reader, int]]) -> AnyFamily:
    """Messages that became dead letters, by the topic in which they failed."""
    family = counter(
        "rocketmq_send_to_dlq_messages_total", "Messages that became dead letters.", *_CONSUMER
    )
    for reader, messages in rows:
        family.add(messages, *_consumer_labels(reader.group, reader.topic))
    return family


class LagFamilies:
    """How far groups are behind. For groups above a limit the counts are added up, and the oldest
    age is reported."""

    def __init__(self, consumers_max: int) -> None:
        self._consumers_max = consumers_max
        self._added = 0
        self._rest = GroupLag(OTHER, OTHER, None, None, None)
        self._lag = gauge(
            "rocketmq_consumer_lag_messages",
            "Messages that the group has not committed.",
            *_CONSUMER,
        )
        self._latency = gauge(
            "rocketmq_consumer_lag_latency",
            "Age of the oldest uncommitted message, in milliseconds; 0 if there is none.",
            *_CONSUMER,
        )
        self._inflight = gauge(
            "rocketmq_consumer_inflight_messages",
            "Messages sent to members but not committed.",
            *_CONSUMER,
        )
        self._ready = gauge(
            "rocketmq_consumer_ready_messages", "Messages not yet sent to members.", *_CONSUMER
        )

    def add(self, row: GroupLag) -> None:
        self._added += 1
        if self._added > self._consumers_max:
            _add_up(self._rest, row)
        else:
            self._show(row)

    def families(self) -> list[AnyFamily]:
        """Call it once."""
        if self._added > self._consumers_max:
            self._show(self._rest)
        return [self._lag, self._latency, self._inflight, self._ready]

    def _show(self, row: GroupLag) -> None:
        labels = _consumer_labels(row.group, row.topic)
        self._lag.add(row.lag, *labels)
        self._latency.add(row.latency_ms, *labels)
        self._inflight.add(row.inflight, *labels)
        self._ready.add(row.ready, *labels)


def importance(row: GroupLag) -> int:
    """Sorts the groups that are furthest behind first; unknown comes before none."""
    return -1 if row.lag is None else -2 * row.lag


def connection_families(
    send_streams: int, members: Iterable[Member], *, groups_max: int
) -> list[AnyFamily]:
    """Groups above `groups_max`, those that came last, are added up."""
    producers = gauge(
        "rocketmq_producer_connections", "Streams over which messages are sent.", "protocol_type"
    )
    producers.add(send_streams, "grpc")
    consumers = gauge(
        "rocketmq_consumer_connections",
        "Live members of consumer groups.",
        "consumer_group",
        "protocol_type",
    )
    counts: dict[str, int] = {}
    for member in members:
        is_shown = member.group in counts or len(counts) < groups_max
        group = member.group if is_shown else OTHER
        counts[group] = counts.get(group, 0) + 1
    for group, count in sorted(counts.items()):
        consumers.add(count, group, "grpc")
    return [producers, consumers]


def broker_families(
    statistics: BrokerStatistics, *, is_readable: bool, oldest_age_ms: int | None
) -> list[AnyFamily]:
    """`oldest_age_ms`: of the oldest message in the log; None: there is none, or unknown."""
    store = statistics.store
    space = store.retention.space
    used = None if space.free_bytes < 0 else space.total_bytes - space.free_bytes
    permission = PERM_READ * is_readable | PERM_WRITE * statistics.is_writable
    return [
        one_gauge(
            "rocketmq_broker_permission",
            "Permission: 4 if it can be read, plus 2 if it can be written.",
            permission,
        ),
        one_gauge("rocketmq_topic_number", "Topics that the broker serves.", statistics.topics),
        one_gauge(
            "rocketmq_consumer_group_number",
            "Consumer groups with members or committed offsets.",
            statistics.groups,
        ),
        _storage("rocketmq_storage_size", "Bytes in use on the store's file system.", used),
        _storage(
            "rocketmq_storage_flush_behind_bytes",
            "Bytes of the log that are not flushed yet.",
            store.appended_end - store.flushed_end,
        ),
        _storage(
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes of the log that consumers cannot see yet.",
            store.appended_end - store.dispatched_end,
        ),
        _storage(
            "rocketmq_storage_message_reserve_time",
            "Age of the oldest message in the log, in milliseconds.",
            oldest_age_ms,
        ),
    ]


def _storage(name: str, help_text: str, value: float | None) -> Family:
    family = gauge(name, help_text, *_STORAGE)
    family.add(value, "local", "disk")
    return family


def _consumer_labels(group: str, topic: str) -> tuple[str, str, str, str]:
    return (
        group,
        topic,
        flag(topic.startswith(RETRY_PREFIX)),
        flag(is_system_topic(topic)),
    )


def _add_up(total: GroupLag, row: GroupLag) -> None:
    """Unknown values are left out; a sum of nothing else is unknown."""
    total.lag = _sum(total.lag, row.lag)
    total.inflight = _sum(total.inflight, row.inflight)
    total.ready = _sum(total.ready, row.ready)
    if row.latency_ms is not None:
        total.latency_ms = max(total.latency_ms or 0, row.latency_ms)


def _sum(known: int | None, value: int | None) -> int | None:
    return known if value is None else (known or 0) + value
