"""Receipt handles: one delivery of a message to a group, as an opaque text for clients.

   1 BROKER TOPIC GROUP QUEUE OFFSET SERIAL VISIBLE_MS CHECKSUM      separated by single spaces

TOPIC is the topic of the queue, thus a retry topic for messages from there. The handle contains
everything that a node needs to find the owner of the message; only the owner knows whether the
delivery is still the current one. The checksum detects texts that were cut or made up; it is not a
secret, and a client that forges a handle can only acknowledge messages of a group that it may read.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from isal.isal_zlib import crc32

from aerobee.rocketmq_api.rules.refusals import Reason, Refused

HANDLE_CHARACTERS_MAX: Final = 1_024
"""Longer texts are refused unread."""

_VERSION: Final = "1"
_NAME: Final = "[!-~]+"
_NUMBER: Final = "0|[1-9][0-9]{0,18}"
_DELIVERY: Final = re.compile(" ".join((f"({_NAME})",) * 3 + (f"({_NUMBER})",) * 4))
_NUMBER_END: Final = 1 << 63


class ReceiptHandle(NamedTuple):
    """One delivery. Names are as in the store, in visible ASCII characters; no number is
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
    """When the message is redelivered unless something is done, Unix ms. 0: not while its client
    lives, see `renewal.py`."""

    def encode(self) -> str:
        """The handle's text, in printable ASCII."""
        text = "1 %s %s %s %d %d %d %d" % self  # noqa: UP031 - twice as fast as by names
        return f"{text} {_checksum(text)}"

    @classmethod
    def decode(cls, text: str) -> Self:
        """The delivery named by a text from a client.

        Raises Refused with ILLEGAL_HANDLE for anything else; the error text does not repeat
        the handle, which could contain anything.
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
        """Raises Refused with ILLEGAL_HANDLE if a request names another topic or group.

        `retry_topics` are the topics from which the group's messages of `topic` are redelivered.
        """
        if self.group != group or (self.topic != topic and self.topic not in retry_topics):
            raise _invalid("it belongs to another topic or group")

    def check_current(self, now_ms: int) -> None:
        """Raises Refused with ILLEGAL_HANDLE if its invisible time is over.

        Lets a forwarding node refuse without asking the owner; for valid times the owner decides.
        """
        if 0 < self.visible_ms <= now_ms:
            raise _invalid("receipt handle is expired")


def _checksum(text: str) -> str:
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def _invalid(reason: str) -> Refused:
    return Refused(
        Reason.ILLEGAL_HANDLE,
        f"the receipt handle names no message that can be acknowledged or changed now: {reason}; "
        "the message comes again with a new handle unless it is finished",
    )
