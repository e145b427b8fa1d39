"""Which messages of a queue a consumer wants, by their tags.

Owns: both answers about a message: from its entry in the consume queue, which has the Java hash of
the tag, and from its record, which has the tag. Two tags may share a hash.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aerobee.store.engine.queues.reading import BoolArray, Int64Array
from aerobee.store.format.consume_queue_ext import EXT_ADDRESS_MAX
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.record import Record

_LOOPED_CODES_MAX = 16


class TagFilter:
    """Passes messages that have one of some tags."""

    __slots__ = ("_codes", "_tags", "is_exact")

    judged_max = None

    def __init__(self, tags: Iterable[str], *, is_exact: bool = False) -> None:
        """Unless `is_exact`, the reader compares the tags itself, and reads skip the records."""
        self.is_exact = is_exact
        self._tags = frozenset(tags)
        codes = {java_string_hash(tag) for tag in self._tags}
        self._codes = np.array(sorted(codes), np.int64).astype(np.int32)

    def __repr__(self) -> str:
        return f"TagFilter({sorted(self._tags)}, is_exact={self.is_exact})"

    def may_match(self, tags_codes: Int64Array) -> BoolArray:
        """For each tags code whether its message may have a wanted tag."""
        low = tags_codes.astype(np.int32)
        # The address of an extension unit does not contain the tag: the record decides.
        passing = tags_codes <= EXT_ADDRESS_MAX
        if len(self._codes) > _LOOPED_CODES_MAX:  # thousands of tags must not hold up the loop
            passing |= np.isin(low, self._codes)
            return passing
        for code in self._codes:
            passing |= low == code
        return passing

    def verdict(self, record: Record) -> tuple[bool, int]:
        """Whether the message has a wanted tag. Raises RecordCorrupt."""
        return record.tag in self._tags, 1
