"""Where topics ended in a folder's log: earlier records belong to former lives, which no queue
lists any more, and that is correct.

Found before the log is walked: by the tags of the journal's queue, and by a walk over the part of
the log that queues need not list yet. The queues of a topic that ends there may be those of either
life: the next start, or the running broker, resolves this.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.log.log_walk import LogWalk
from aerobee.store.engine.log.segment import Segment
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, unpack_entries
from aerobee.store.format.tags import TagsCodes
from aerobee.store.format.topic_end import (
    JOURNAL_TOPIC,
    TOPIC_END_TAGS_CODE,
    ended_topic,
    find_topic_ends,
)
from aerobee.store.repair.folder import Folder
from aerobee.store.repair.log_reader import LogReader
from aerobee.store.repair.queue_cursor import QueueCursor, read_entries

_ENTRIES_PER_READ = 50_000
_CHUNK_BYTES = 1 << 20
_FILES_MAX = 4


@dataclass(frozen=True, slots=True)
class FormerTopics:
    """`ends`: topic -> the log position of its newest end. `unsettled`: topics that end where
    queues need not list records yet."""

    ends: dict[str, int] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)


def find_former_topics(
    folder: Folder, tags: TagsCodes, *, unlisted_from: int | None
) -> FormerTopics:
    """From the segment that contains `unlisted_from` on, queues may lack entries; None: nowhere.
    Raises OSError."""
    found = FormerTopics()
    _find_listed(folder, found.ends)
    if unlisted_from is not None:
        _find_unlisted(folder, tags, unlisted_from, found)
    return found


def _find_listed(folder: Folder, ends: dict[str, int]) -> None:
    log, files = LogReader(folder), FileCache(folder.disk, _FILES_MAX)
    for queue in folder.queues:
        if queue.topic != JOURNAL_TOPIC:
            continue
        cursor = QueueCursor(queue.topic, queue.queue_id, queue)
        entry = queue.first
        while data := read_entries(folder, files, cursor, entry, _ENTRIES_PER_READ):
            entry += len(data) // ENTRY_SIZE
            positions, sizes, codes = unpack_entries(data)
            for index in np.flatnonzero((sizes > 0) & (codes == TOPIC_END_TAGS_CODE)).tolist():
                position = int(positions[index])
                record = log.record_at(position, int(sizes[index]))
                if record is not None and record.topic == JOURNAL_TOPIC:
                    topic = ended_topic(record)
                    ends[topic] = max(position, ends.get(topic, 0))


def _find_unlisted(folder: Folder, tags: TagsCodes, start: int, former: FormerTopics) -> None:
    """As far as the log can be walked."""
    size = folder.segment_bytes
    segments = []
    for found in folder.segments:
        segment = Segment(found.base, size, size)
        if found.base + size > start:
            if found.path != segment.path or found.file_bytes != size:
                break
            segments.append(segment)
    if not segments:
        return
    walk = LogWalk(folder.disk, segments, 0, tags=tags, check_crc=False, chunk_bytes=_CHUNK_BYTES)
    for chunk in walk:
        for end in find_topic_ends(chunk.result, chunk.data, chunk.position):
            former.ends[end.topic] = end.position
            former.unsettled.add(end.topic)
