"""The topics that every broker has for itself and that nameservers do not know: journals, and those
in which messages wait until they are due or decided. Clients can read them, but not send to
them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aerobee.broker.pop.entries import POP_JOURNAL_TOPIC
from aerobee.broker.timers.entries import TIMER_JOURNAL_TOPIC
from aerobee.broker.transactions.intents import TRANSACTION_JOURNAL_TOPIC
from aerobee.store.engine.tables.config_tables import PERM_READ, TopicConfig, TopicTable
from aerobee.store.format.delayed_records import HALF_TOPIC, TIMER_TOPIC
from aerobee.store.format.tags import SCHEDULE_TOPIC
from aerobee.store.format.topic_end import JOURNAL_TOPIC
from aerobee.store.format.transaction_records import ASIDE_TOPIC, OP_TOPIC

OWN_TOPICS: Final = (
    JOURNAL_TOPIC,
    TIMER_JOURNAL_TOPIC,
    POP_JOURNAL_TOPIC,
    TRANSACTION_JOURNAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ASIDE_TOPIC,
)


def add_own_topics(topics: TopicTable, *, delay_levels: int) -> None:
    """Includes a queue for each delay level. A topic left by Apache's broker otherwise stays as it
    was."""
    for name in OWN_TOPICS:
        queues = delay_levels if name == SCHEDULE_TOPIC else 1
        known = topics.get(name) or TopicConfig(
            name=name, read_queue_count=0, write_queue_count=0, perm=PERM_READ
        )
        topics.put(
            replace(
                known,
                read_queue_count=max(known.read_queue_count, queues),
                write_queue_count=max(known.write_queue_count, queues),
            )
        )
