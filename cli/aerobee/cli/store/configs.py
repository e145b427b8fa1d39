"""The files of a store's `config/` folder, as sections of its dump.

Files that are missing are empty tables, as a broker would start with. Of topics and groups the
fields are shown that every release has; files without a section of their own are shown as they are.
"""

from __future__ import annotations

from typing import Any

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.tables.atomic_file import read_with_backup
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    ConsumerOffsetTable,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicTable,
)
from aerobee.store.engine.tables.count_table import (
    TIMER_METRICS_PATH,
    TRANSACTION_METRICS_PATH,
    CountTable,
)
from aerobee.store.engine.tables.delay_offset_table import DELAY_OFFSETS_PATH, DelayOffsetTable
from aerobee.store.format.json_config import JsonValue, ObjectKey, parse_object

_SHOWN_AS_THEY_ARE = (
    "consumerFilter.json",
    "consumerOrderInfo.json",
    "lmqConsumerOffset.json",
    "messageRequestMode.json",
    "topicQueueMapping.json",
)


def describe_configs(disk: Disk) -> dict[str, Any]:
    """All sections. Raises StoreUnusable for a file that cannot be read, nor its backup."""
    offsets = read_with_backup(disk, CONSUMER_OFFSETS_PATH, ConsumerOffsetTable.load).value
    topics = read_with_backup(disk, TOPICS_PATH, TopicTable.load).value or TopicTable()
    groups = read_with_backup(disk, SUBSCRIPTION_GROUPS_PATH, SubscriptionGroupTable.load).value
    delays = read_with_backup(disk, DELAY_OFFSETS_PATH, DelayOffsetTable.load).value
    by_queue = {} if offsets is None else offsets.as_json()
    levels = {} if delays is None else delays.offsets()
    return {
        "consumerOffsets": {key: by_queue[key] for key in sorted(by_queue)},
        "delayOffsets": {str(level): offset for level, offset in levels.items()},
        "topicConfigs": {config.name: _topic(config) for config in topics.configs()},
        "subscriptionGroups": {
            config.name: _group(config) for config in (() if groups is None else groups.configs())
        },
        "timerMetrics": _counts(disk, TIMER_METRICS_PATH, "timingCount"),
        "transactionMetrics": _counts(disk, TRANSACTION_METRICS_PATH, "transactionCount"),
        "otherConfigs": _others(disk),
    }


def _topic(config: TopicConfig) -> dict[str, Any]:
    return {
        "readQueueNums": config.read_queue_count,
        "writeQueueNums": config.write_queue_count,
        "perm": config.perm,
        "topicFilterType": config.filter_type,
        "topicSysFlag": config.sys_flag,
        "order": config.order,
        "attributes": dict(config.attributes),
    }


def _group(config: SubscriptionGroupConfig) -> dict[str, Any]:
    return {
        "consumeEnable": config.consume_enabled,
        "consumeMessageOrderly": config.consume_orderly,
        "retryQueueNums": config.retry_queue_count,
        "retryMaxTimes": config.retry_times_max,
    }


def _counts(disk: Disk, path: str, table_name: str) -> dict[str, Any]:
    table = read_with_backup(disk, path, CountTable.load).value or CountTable(table_name)
    return table.as_json()


def _others(disk: Disk) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _SHOWN_AS_THEY_ARE:
        document = read_with_backup(disk, f"config/{name}", parse_object).value
        if document is not None:
            found[name] = _plain(document)
    return found


def _plain(value: JsonValue) -> Any:
    """Without keys that are objects, which JSON cannot have: they become their text."""
    if isinstance(value, dict):
        return {
            str(key.as_dict()) if isinstance(key, ObjectKey) else key: _plain(member)
            for key, member in value.items()
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
