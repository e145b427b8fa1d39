"""Receipt handles: one delivery of a message to a group, as a text that clients only keep.

   1 BROKER TOPIC GROUP QUEUE OFFSET SERIAL VISIBLE_MS CHECKSUM      separated by single spaces

TOPIC is the topic of the queue, so a retry topic for what comes from there. The handle says all
that a node needs to find the one that owns the message; whether the delivery is still the current
one, only the owner knows. The checksum tells a handle from a text that was cut or made up; it is no
secret, and a client that forges a handle only acknowledges messages of a group that it may read.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from isal.isal_zlib import crc32

from aerobee.rocketmq_api.codes import Refused
from apache.rocketmq.v2 import definition_pb2 as v2

HANDLE_CHARACTERS_MAX: Final = 1_024
"""Longer texts are refused unread."""

_VERSION: Final = "1"
_NAME: Final = "[!-~]+"
_NUMBER: Final = "0|[1-9][0-9]{0,18}"
_DELIVERY: Final = re.compile(" ".join((f"({_NAME})",) * 3 + (f"({_NUMBER})",) * 4))
_NUMBER_END: Final = 1 << 63


class ReceiptHandle(NamedTuple):
    """One delivery. Names are as the store has them, of visible ASCII characters; no number is
    negative."""

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

    def encode(self) -> str:
        """The handle's text, in printable ASCII."""
        text = "1 %s %s %s %d %d %d %d" % self  # noqa: UP031 - twice as fast as by names
        return f"{text} {_checksum(text)}"

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
        version, _, rest = text.partition(" ")
        if version != _VERSION:
            raise _invalid(f"it does not begin with {_VERSION}, the one version that is known")
        said, _, checksum = text.rpartition(" ")
        if _checksum(said) != checksum:
            raise _invalid("it was cut or changed on its way")
        found = _DELIVERY.fullmatch(rest, 0, len(rest) - len(checksum) - 1)
        if found is None:
            raise _invalid("it does not name a message")
        broker_name, topic, group, *numbers = found.groups()
        handle = cls(broker_name, topic, group, *map(int, numbers))
        if max(handle[3:]) >= _NUMBER_END:
            raise _invalid("it does not name a message")
        return handle

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
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def _invalid(reason: str) -> Refused:
    return Refused(
        v2.INVALID_RECEIPT_HANDLE,
        f"the receipt handle names no message that can be acknowledged or changed now: {reason}; "
        "the message comes again with a new handle unless it is finished",
    )
