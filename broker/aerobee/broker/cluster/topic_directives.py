"""The nameserver's announcements of topics, applied to this broker.

Owns: the translation of announced topics into the topic table. A topic without queues on this
replica set is not kept; topics that no nameserver announced (the store's own) are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedTopic:
    """One topic as the nameserver announces it; `queue_count` is this replica set's share."""

    name: str
    queue_count: int
    perm: int
    order: bool
    revision: int
    is_retired: bool = False
    """It takes no new messages here."""
    deleted: bool = False
    deleted_at_ms: int = 0
    """When a topic of this name was last deleted, Unix ms; 0: never, or no longer remembered."""
    attributes: dict[str, str] = field(default_factory=dict)


LAYOUT_ATTRIBUTES = frozenset({"queue.type", "cleanup.policy"})
"""How a topic's messages are stored in the folder: only the folder knows."""


def apply_topics(
    table: TopicTable,
    announced: Sequence[AnnouncedTopic],
    *,
    metadata_revision: int,
    metadata_history: str = "",
    is_complete: bool,
    ended_at_ms: Callable[[str], int] = lambda topic: 0,
) -> list[str]:
    """Change the table; returns the topics that are gone.

    `is_complete`: a topic announced earlier and missing in `announced` is gone; its messages go too
    only if it is said to be deleted. `ended_at_ms`: when the topic of this name whose end is in the
    log was deleted. `metadata_history`: the history that the revision counts in; empty if the
    nameserver does not know.
    """
    gone: list[str] = []
    for topic in announced:
        if topic.deleted_at_ms > ended_at_ms(topic.name):
            table.begin_ending(topic.name, topic.deleted_at_ms)
        if topic.deleted or topic.queue_count == 0:
            if table.remove(topic.name):
                gone.append(topic.name)
            continue
        known = table.get(topic.name) or TopicConfig(name=topic.name)
        table.put(
            replace(
                known,
                read_queue_count=topic.queue_count,
                write_queue_count=0 if topic.is_retired else topic.queue_count,
                perm=topic.perm,
                order=topic.order,
                attributes={**_kept_attributes(known), **topic.attributes},
                revision=topic.revision,
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
    if metadata_history:
        table.metadata_history = metadata_history
    return gone


def _kept_attributes(known: TopicConfig) -> Mapping[str, str]:
    """What an announcement does not remove: every attribute of a topic that only the folder knew,
    and for any topic the attributes that say how its messages are stored."""
    if known.revision == 0:
        return known.attributes
    return {name: value for name, value in known.attributes.items() if name in LAYOUT_ATTRIBUTES}
