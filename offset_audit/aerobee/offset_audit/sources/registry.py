"""`aerobee.registry`: what the nameservers know, as tables of brokers, groups and topics.

Each table is of one revision, which its rows contain: brokers come and go between two questions. A
run takes all tables from one view before it asks the brokers, and another view after that: no
broker is blamed for what changed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.sources.live.asking import RegistryView, view_registry
from aerobee.offset_audit.sources.live.options import (
    REGISTRY_TABLES,
    LiveOptions,
    parse_options,
)
from aerobee.offset_audit.tables import COLUMNS
from aerobee.runtime.errors import InvalidArgument
from aerobee.v1 import common_pb2, nameserver_pb2

Row = tuple[object, ...]


class RegistrySource(DataSource):
    """Options: `nameservers`, `cluster`, `table` (brokers, groups or topics), `timeoutMs`."""

    @classmethod
    def name(cls) -> str:
        return "aerobee.registry"

    def schema(self) -> StructType:
        return schema(COLUMNS[f"registry_{_options(self.options).table}"])

    def reader(self, schema: StructType) -> RegistryReader:
        return RegistryReader(_options(self.options))


class RegistryReader(DataSourceReader):
    """One partition: one nameserver answers for all."""

    def __init__(self, options: LiveOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[Row]:
        table = self._options.table
        yield from _ROWS[table](view_registry(self._options, with_topics=table == "topics"))


def registry_rows(view: RegistryView) -> dict[str, list[Row]]:
    """The rows of all tables, by their names in `Tables`."""
    return {f"registry_{table}": list(rows(view)) for table, rows in _ROWS.items()}


def standing(first: RegistryView, then: RegistryView) -> RegistryView:
    """`first` without topics that had been changed or deleted, and groups that had another master,
    when `then` was taken."""
    description, topics = type(first.description)(), type(first.topics)()
    description.CopyFrom(first.description)
    topics.CopyFrom(first.topics)
    routes = {one.name: one for one in then.topics.topics}
    leaders = {one.broker_name: _leader(one) for one in then.description.groups}
    del topics.topics[:]
    topics.topics.extend(one for one in first.topics.topics if routes.get(one.name) == one)
    del description.groups[:]
    description.groups.extend(
        one for one in first.description.groups if leaders.get(one.broker_name) == _leader(one)
    )
    return RegistryView(description, topics)


def _leader(group: nameserver_pb2.GroupRecord) -> tuple[int, int, str]:
    return group.epoch, group.master_id, group.master_instance


def _options(given: Mapping[str, str]) -> LiveOptions:
    options = parse_options(given, REGISTRY_TABLES)
    if not options.table:
        raise InvalidArgument(f"name the table: table={'|'.join(REGISTRY_TABLES)}")
    if not options.nameservers:
        raise InvalidArgument("only nameservers know the registry: nameservers=HOST:PORT,...")
    return options


def _brokers(view: RegistryView) -> Iterator[Row]:
    description = view.description
    # Each list is in the order of `brokers`; an older nameserver may omit one.
    ages = dict(enumerate(description.heartbeat_age_ms))
    for number, broker in enumerate(description.brokers):
        age_ms = ages.get(number, -1)
        yield (
            description.cluster,
            description.version,
            broker.identity.broker_name,
            broker.identity.broker_id,
            broker.address,
            common_pb2.BrokerRole.Name(broker.role),
            broker.epoch,
            broker.identity.instance,
            age_ms if age_ms >= 0 else None,
            description.stale,
            broker.zone or None,
        )


def _groups(view: RegistryView) -> Iterator[Row]:
    description = view.description
    for group in description.groups:
        yield (
            description.cluster,
            description.version,
            group.broker_name,
            group.epoch,
            group.master_id,
            group.master_instance,
            [name.broker_id for name in group.in_sync],
            list(group.replicas),
            list(group.unclean_epochs),
        )


def _topics(view: RegistryView) -> Iterator[Row]:
    for topic in view.topics.topics:
        for broker_name, queues in topic.queues_by_broker.items():
            yield (
                view.description.cluster,
                view.topics.version,
                topic.name,
                broker_name,
                queues,
                queues,
                topic.perm,
                topic.revision or None,
            )


_ROWS: dict[str, Callable[[RegistryView], Iterator[Row]]] = {
    "brokers": _brokers,
    "groups": _groups,
    "topics": _topics,
}
