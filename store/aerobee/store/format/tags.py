"""Tags codes: what a consume queue entry stores about a message's tag, so that brokers can filter.

Usually the Java hash of the tag, sign-extended to 64 bits, and 0 without a tag. Entries of the
schedule topic hold the delivery time instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.properties import find_property

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"

_TAG_BYTES_KEPT_MAX: Final = 256


class TagsCodes:
    """Computes tags codes and remembers the hashes of tags seen.

    The memory is bounded by the number of entries and by tag size: tags are few in practice, and a
    client that makes each one unique only loses the speed-up.
    """

    __slots__ = ("_codes", "_entries_max", "_levels")

    def __init__(self, *, delays_ms: Sequence[int] | None = None, entries_max: int = 4096) -> None:
        self._levels = DelayLevels.parse() if delays_ms is None else DelayLevels(tuple(delays_ms))
        self._entries_max = entries_max
        self._codes: dict[bytes, int] = {}

    def code_of(self, tag: bytes) -> int:
        """The code of a tag given as UTF-8 bytes; 0 for an empty one."""
        code = self._codes.get(tag)
        if code is None:
            code = java_string_hash(tag.decode("utf-8", "replace"))
            if len(self._codes) >= self._entries_max:
                self._codes.clear()
            # Never the empty tag: `codes_of` assumes that a tag found here is set.
            if 0 < len(tag) <= _TAG_BYTES_KEPT_MAX:
                self._codes[tag] = code
        return code

    def code_in(self, buffer: bytes | bytearray, start: int, end: int) -> int:
        """The code of the message whose properties are at [start, end)."""
        tag = find_property(buffer, start, end, b"TAGS")
        return 0 if tag is None else self.code_of(tag)

    def codes_of(self, properties: Sequence[bytes], joined: bytes | None = None) -> list[int]:
        """`code_in` for the properties of many messages, which may be given end to end, too."""
        if not has_tags(b"\x02".join(properties) if joined is None else joined):
            return [0] * len(properties)
        known = self._codes
        codes = []
        for text in properties:
            # The usual case inline: the tag is not the first property, and its hash is known.
            _, found, rest = text.rpartition(b"\x02TAGS\x01")
            code = known.get(rest.partition(b"\x02")[0]) if found else None
            if code is None:
                is_set = found or text.startswith(b"TAGS\x01")
                code = self.code_in(text, 0, len(text)) if is_set else 0
            codes.append(code)
        return codes

    def scheduled_code_in(
        self, buffer: bytes | bytearray, start: int, end: int, store_timestamp_ms: int
    ) -> int:
        """The code of a message of the schedule topic: its delivery time in Unix ms.

        Without a delay level it is an ordinary code.
        """
        level = _delay_level(find_property(buffer, start, end, b"DELAY"))
        if level <= 0:
            return self.code_in(buffer, start, end)
        return store_timestamp_ms + self._levels.delay_ms(level)


def has_tags(joined: bytes) -> bool:
    """Whether any message may have a tag, given the properties of many end to end; False is
    certain."""
    return b"TAGS\x01" in joined


def _delay_level(value: bytes | None) -> int:
    if value is None or re.fullmatch(rb"[+-]?[0-9]{1,9}", value) is None:
        return 0
    return int(value)
