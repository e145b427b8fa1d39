"""Receipt handles: one delivery of a message to a group, as a text that clients only keep.

   1 BROKER TOPIC GROUP QUEUE OFFSET SERIAL VISIBLE_MS CHECKSUM      separated by single spaces

TOPIC is the topic of the queue, so a retry topic for what comes from there. The handle says all
that a node needs to find the one that owns the message; whether the delivery is still the current
one, only the owner knows. The checksum tells a handle from a text that was cut or made up; it is no
secret, and a client that forges a handle only acknowledges messages of a group that it may read.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final, Self

from aerobee.rocketmq_api.codes import Refused
from apache.rocketmq.v2 import definition_pb2 as v2

HANDLE_CHARACTERS_MAX: Final = 1_024
"""Longer texts are refused unread."""

_VERSION: Final = "1"
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,18}")
_NAME: Final = re.compile("[!-~]+")
_NUMBER_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class ReceiptHandle:
    """One delivery. Names are as the store has them."""

    broker_name: str
    topic: str
    group: str
    queue_id: int
    queue_offset: int
    serial: int
    """Differs between the deliveries of a message to a group, and after each change of its
    invisible time."""
    visible_ms: int
    """When the message comes again unless something is done, Unix ms. 0: as long as its client
    lives, see `renewal.py`."""

    def __post_init__(self) -> None:
        for name in (self.broker_name, self.topic, self.group):
            assert _NAME.fullmatch(name), name
        for number in self._numbers():
            assert 0 <= number < _NUMBER_END, number

    def encode(self) -> str:
        """The handle's text, in printable ASCII."""
        names = f"{self.broker_name} {self.topic} {self.group}"
        text = f"{_VERSION} {names} {' '.join(map(str, self._numbers()))}"
        return f"{text} {_checksum(text)}"

    def _numbers(self) -> tuple[int, ...]:
        return self.queue_id, self.queue_offset, self.serial, self.visible_ms

    @classmethod
    def decode(cls, text: str) -> Self:
        """The delivery that a text from a client names.

        Raises Refused with INVALID_RECEIPT_HANDLE for everything that is no handle; the sentence
        does not repeat the text, which could hold anything.
        """
        if not text:
            raise _invalid("it is empty")
        if len(text) > HANDLE_CHARACTERS_MAX:
            raise _invalid(f"it has {len(text)} characters, more than a handle ever has")
        words = text.split(" ")
        if words[0] != _VERSION:
            raise _invalid(f"it does not begin with {_VERSION}, the one version that is known")
        if len(words) != 9 or _checksum(text.rpartition(" ")[0]) != words[-1]:
            raise _invalid("it was cut or changed on its way")
        names, numbers = words[1:4], words[4:8]
        if not all(map(_NAME.fullmatch, names)) or not all(map(_NUMBER.fullmatch, numbers)):
            raise _invalid("it does not name a message")
        queue_id, queue_offset, serial, visible_ms = map(int, numbers)
        if max(queue_id, queue_offset, serial, visible_ms) >= _NUMBER_END:
            raise _invalid("it does not name a message")
        broker_name, topic, group = names
        return cls(broker_name, topic, group, queue_id, queue_offset, serial, visible_ms)

    def check_used_by(self, topic: str, group: str, *, retry_topics: tuple[str, ...] = ()) -> None:
        """Raises Refused with INVALID_RECEIPT_HANDLE if a request names another topic or group.

        `retry_topics` are those from which the group's messages of `topic` come again.
        """
        if self.group != group or self.topic not in (topic, *retry_topics):
            raise _invalid("it belongs to another topic or group")

    def check_current(self, now_ms: int) -> None:
        """Raises Refused with INVALID_RECEIPT_HANDLE if its invisible time is over.

        A node that forwards need not ask the owner then; in time the owner decides.
        """
        if 0 < self.visible_ms <= now_ms:
            raise _invalid("receipt handle is expired")


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def _invalid(reason: str) -> Refused:
    return Refused(
        v2.INVALID_RECEIPT_HANDLE,
        f"the receipt handle names no message that can be acknowledged or changed now: {reason}; "
        "the message comes again with a new handle unless it is finished",
    )
