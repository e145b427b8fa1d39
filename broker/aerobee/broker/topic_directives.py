"""The nameserver's word on topics, made this broker's.

Owns: the translation of announced topics into the topic table. A topic without queues on this
broker group is not kept; topics that no nameserver announced (the store's own) are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aerobee.broker.store.tables.config_tables import TopicConfig, TopicTable


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedTopic:
    """One topic as the nameserver announces it; `queue_count` is this broker group's share."""

    name: str
    queue_count: int
    perm: int
    order: bool
    revision: int
    deleted: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


def apply_topics(
    table: TopicTable,
    announced: Sequence[AnnouncedTopic],
    *,
    metadata_revision: int,
    is_complete: bool,
) -> list[str]:
    """Change the table; returns the topics that are gone.

    `is_complete`: whatever a nameserver announced earlier and is not in `announced` is gone.
    """
    gone: list[str] = []
    for topic in announced:
        if topic.deleted or topic.queue_count == 0:
            if table.remove(topic.name):
                gone.append(topic.name)
            continue
        known = table.get(topic.name)
        table.put(
            TopicConfig(
                name=topic.name,
                read_queue_count=topic.queue_count,
                write_queue_count=topic.queue_count,
                perm=topic.perm,
                order=topic.order,
                attributes=topic.attributes,
                revision=topic.revision,
                unknown=known.unknown if known is not None else {},
            )
        )
    if is_complete:
        kept = {topic.name for topic in announced}
        for config in table.configs():
            if config.revision > 0 and config.name not in kept:
                table.remove(config.name)
                gone.append(config.name)
    if metadata_revision:
        table.metadata_revision = metadata_revision
    return gone
