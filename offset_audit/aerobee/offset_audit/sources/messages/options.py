"""The options of `aerobee.messages`, checked: named and shaped as in Spark's Kafka source.

Unknown options are refused, because ignoring a mistyped one would read other messages than its user
expects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.client_core.defaults import CLUSTER_DEFAULT
from aerobee.cluster_view.nameservers import parse_addresses
from aerobee.cluster_view.route import MessageQueue
from aerobee.domain.names import is_system_topic
from aerobee.offset_audit.sources.messages.columns import (
    BODY,
    COLUMN_NAMES,
    PROPERTIES,
    Columns,
)
from aerobee.offset_audit.sources.messages.offsets import (
    EARLIEST,
    LATEST,
    QueueOffsets,
    parse_offsets,
)
from aerobee.offset_audit.sources.option_texts import OptionTexts, meant
from aerobee.runtime.errors import InvalidArgument

KNOWN: Final = (
    "nameservers",
    "nameServer",
    "cluster",
    "path",
    "name",
    "topic",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "partitionBytes",
    "failOnDataLoss",
    "columns",
    "includeProperties",
    "includeBody",
    "checkBodies",
    "pushFilters",
    "timeoutMs",
    "fetchBytes",
)

FETCH_BYTES_DEFAULT: Final = 4 * 1024 * 1024
PARTITION_BYTES_DEFAULT: Final = 64 * 1024 * 1024
TIMEOUT_MS_DEFAULT: Final = 60_000


@dataclass(frozen=True, slots=True)
class Topics:
    """Which topics and queues are read: names, a pattern, or queues."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    queues: tuple[MessageQueue, ...] = ()

    def named(self) -> tuple[str, ...] | None:
        """The topics, None if a pattern finds them."""
        if self.pattern:
            return None
        return self.names or tuple(sorted({queue.topic for queue in self.queues}))

    def matches(self, topic: str) -> bool:
        """Whether the topic is read. A pattern matches no system topics, and retry and dead-letter
        topics, which begin with %, only if it begins with % itself."""
        if not self.pattern:
            return topic in (self.named() or ())
        if is_system_topic(topic):
            return False
        if topic.startswith("%") and not self.pattern.startswith("%"):
            return False
        return re.fullmatch(self.pattern, topic) is not None

    def takes(self, queue: MessageQueue) -> bool:
        return self.matches(queue.topic) and (not self.queues or queue in self.queues)


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading begins or ends: one offset or time for all queues, or one for each."""

    option: str
    offset: int | None = None
    """EARLIEST or LATEST."""
    offsets: QueueOffsets | None = None
    time_ms: int | None = None
    times_ms: QueueOffsets | None = None


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """What a user asked for."""

    nameservers: tuple[str, ...]
    cluster: str
    path: str
    broker_name: str
    topics: Topics
    start: Bound
    end: Bound
    late_start_is_error: bool
    """Whether a starting time after the last message is an error; otherwise it means the latest
    offset."""
    messages_per_trigger_max: int
    """0: no limit."""
    partitions_min: int
    partition_messages_max: int
    partition_bytes: int
    fail_on_data_loss: bool
    push_filters: bool
    columns: Columns
    timeout_ms: int
    fetch_bytes: int


def parse_options(given: Mapping[str, str], *, is_streaming: bool | None) -> MessageOptions:
    """`is_streaming` None: not known yet.

    Raises InvalidArgument that says which option is wrong, and how to write it.
    """
    options = _Options(given)
    nameservers = options.text("nameservers") or options.text("nameServer")
    path = options.text("path")
    if bool(nameservers) == bool(path):
        raise InvalidArgument(
            "give either nameservers=HOST:PORT,... to read a live cluster or path=FOLDER to read a "
            "store's files"
        )
    start = options.bound("starting", default=LATEST if is_streaming else EARLIEST)
    end = options.bound("ending", default=LATEST)
    if is_streaming and options.has_bound("ending"):
        raise InvalidArgument("a streaming query has no end: leave out endingOffsets and the like")
    if start.offset == LATEST and is_streaming is False:
        raise InvalidArgument("startingOffsets=latest reads nothing in a batch: name another start")
    if end.offset == EARLIEST:
        raise InvalidArgument("endingOffsets=earliest reads nothing: name another end")
    return MessageOptions(
        nameservers=parse_addresses(nameservers) if nameservers else (),
        cluster=options.text("cluster") or CLUSTER_DEFAULT,
        path=path,
        broker_name=options.text("name"),
        topics=options.topics(),
        start=start,
        end=end,
        late_start_is_error=options.late_start_is_error(),
        messages_per_trigger_max=options.number("maxOffsetsPerTrigger", 0, lowest=1),
        partitions_min=options.number("minPartitions", 0, lowest=1),
        partition_messages_max=options.number("maxRecordsPerPartition", 0, lowest=1),
        partition_bytes=options.number("partitionBytes", PARTITION_BYTES_DEFAULT, lowest=65_536),
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        push_filters=options.flag("pushFilters", False),
        columns=options.columns(),
        timeout_ms=options.number("timeoutMs", TIMEOUT_MS_DEFAULT, lowest=1),
        fetch_bytes=options.number("fetchBytes", FETCH_BYTES_DEFAULT, lowest=4_096),
    )


class _Options(OptionTexts):
    """All of them must be known."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        self.refuse_protection()
        known = {name.lower() for name in KNOWN}
        for name in given:
            if name.lower() not in known:
                like = meant(name.lower(), KNOWN)
                hint = f"did you mean {like}?" if like else f"it has {', '.join(KNOWN)}"
                raise InvalidArgument(f"aerobee.messages has no option {name!r}: {hint}")

    def columns(self) -> Columns:
        given = [name.strip() for name in self.text("columns").split(",") if name.strip()]
        for name in given:
            if name not in COLUMN_NAMES or given.count(name) > 1:
                wrong = "twice" if name in COLUMN_NAMES else "which does not exist"
                raise InvalidArgument(
                    f"option columns names {name!r} {wrong}; columns are: {', '.join(COLUMN_NAMES)}"
                )
        left_out = {
            name
            for name, option in ((PROPERTIES, "includeProperties"), (BODY, "includeBody"))
            if not self.flag(option, True)
        }
        names = tuple(name for name in given or COLUMN_NAMES if name not in left_out)
        if not names:
            raise InvalidArgument(
                "option columns names only columns that includeBody and the like exclude"
            )
        return Columns(names, check_bodies=self.flag("checkBodies", True))

    def topics(self) -> Topics:
        ways = ("topic", "subscribe", "subscribePattern", "assign")
        given = [name for name in ways if self.text(name)]
        if len(given) != 1:
            raise InvalidArgument(
                f"name what to read by exactly one of {', '.join(ways)}; given: "
                f"{', '.join(given) or 'none'}"
            )
        text = self.text(given[0])
        if given[0] == "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise InvalidArgument(
                    f"option subscribePattern is {text!r:.80}, not a regular expression: {error}"
                ) from None
            return Topics(pattern=text)
        if given[0] == "assign":
            return Topics(queues=_parse_queues(text))
        names = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
        if not names:
            raise InvalidArgument(f"option {given[0]} names no topic")
        return Topics(names=names)

    def has_bound(self, side: str) -> bool:
        return any(self.text(name) for name in _bound_options(side))

    def bound(self, side: str, *, default: int) -> Bound:
        """The most specific given option counts, as in Kafka."""
        by_time, by_times, by_offsets = _bound_options(side)
        if text := self.text(by_time):
            return Bound(by_time, time_ms=self.number(by_time, 0, lowest=0) if text else None)
        if text := self.text(by_times):
            return Bound(by_times, times_ms=parse_offsets(text, by_times))
        text = self.text(by_offsets)
        if not text:
            return Bound(by_offsets, offset=default)
        if text.lower() in ("earliest", "latest"):
            return Bound(by_offsets, offset=EARLIEST if text.lower() == "earliest" else LATEST)
        offsets = parse_offsets(text, by_offsets)
        wrong = [offset for offset in offsets.values() if offset < EARLIEST]
        if wrong:
            raise InvalidArgument(
                f"option {by_offsets} has the offset {wrong[0]}; below 0 there are only -1, the "
                "latest, and -2, the earliest"
            )
        return Bound(by_offsets, offsets=offsets)

    def late_start_is_error(self) -> bool:
        text = self.text("startingOffsetsByTimestampStrategy").lower() or "error"
        if text not in ("error", "latest"):
            raise InvalidArgument(
                f"option startingOffsetsByTimestampStrategy is {text!r:.40}, neither error nor "
                "latest"
            )
        return text == "error"


def _bound_options(side: str) -> tuple[str, str, str]:
    return f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"


def _parse_queues(text: str) -> tuple[MessageQueue, ...]:
    example = '{"orders": {"broker-a": [0, 1]}}'
    try:
        queues = tuple(
            MessageQueue(topic, broker_name, int(queue_id))
            for topic, by_broker in json.loads(text).items()
            for broker_name, queue_ids in by_broker.items()
            for queue_id in queue_ids
        )
    except (ValueError, TypeError, AttributeError):
        queues = ()
    if not queues:
        raise InvalidArgument(
            f"option assign is {text!r:.80}, not JSON of topic -> broker -> queues, as in {example}"
        )
    return tuple(sorted(set(queues)))
