"""The end of a topic's life as recorded in the log: one record of the offset journal.

Everything of the topic before that record is gone, and everything after it belongs to another life:
its queues start at 0. The record has a tag of its own and names the topic in a property, so that a
walk over the log sees it without reading bodies.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.properties import encode_properties, find_property
from aerobee.store.format.record_layout import is_topic_storable
from aerobee.store.format.record_view import Record
from aerobee.store.format.scan import ScanResult

JOURNAL_TOPIC: Final = "AEROBEE_OFFSET_JOURNAL"
"""The broker's internal topic for such records; no client can write to it."""
TOPIC_END_TAG: Final = "TopicEnd"

TOPIC_END_TAGS_CODE: Final = java_string_hash(TOPIC_END_TAG)
_ENDED_TOPIC: Final = "AEROBEE_ENDED_TOPIC"
_ENDED_TOPIC_NAME: Final = _ENDED_TOPIC.encode()


class TopicEnd(NamedTuple):
    """`number` is the record's number in its scan; it is at [position, end) of the log."""

    number: int
    topic: str
    position: int
    end: int


def topic_end_properties(topic: str) -> bytes:
    """The properties of a record that ends `topic`."""
    return encode_properties({"TAGS": TOPIC_END_TAG, _ENDED_TOPIC: topic})


def ended_topic(record: Record) -> str:
    """The topic that a record of the journal ends; empty: none."""
    return record.properties.get(_ENDED_TOPIC, "")


def find_topic_ends(result: ScanResult, data: bytes, position: int) -> list[TopicEnd]:
    """The ends among scanned records, in log order; `data` is at `position` of the log."""
    if JOURNAL_TOPIC not in result.topic_table:
        return []
    code = result.topic_table.index(JOURNAL_TOPIC)
    chosen = (result.tags_codes == TOPIC_END_TAGS_CODE) & (result.topic_codes == code)
    found: list[TopicEnd] = []
    for index in np.flatnonzero(chosen).tolist():
        start = int(result.positions[index])
        end = start + int(result.sizes[index])
        name = find_property(data, int(result.properties_starts[index]), end, _ENDED_TOPIC_NAME)
        if name is not None and is_topic_storable(name):
            found.append(TopicEnd(index, name.decode(), position + start, position + end))
    return found
