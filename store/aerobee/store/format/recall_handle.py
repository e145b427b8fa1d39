"""What a producer gets for a delayed message, and sends back to recall it.

   URL-safe Base64, with padding, of `v1 TOPIC BROKER DELIVER_MS UNIQUE_KEY [CONTENT]`

CONTENT tells messages with one unique key apart (`message_content`). Apache's brokers issue none
and ignore it; a handle without it names them all. Apache's broker returns a handle for each timer
message: DELIVER_MS is then the time of the message's slot plus one millisecond. Clients treat the
text as opaque and send it to any node, which reads the broker's name from it: so it is untrusted
input.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final, Self

HANDLE_CHARACTERS_MAX: Final = 2_048
"""Longer texts are refused unread; topic, broker name and id take about 700 bytes at most."""

_VERSION: Final = "v1"
_TIME_END: Final = 1 << 63
_CONTENT: Final = re.compile("[0-9a-f]{16}")
_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")


class RecallHandleIllegal(ValueError):
    """A text that no broker issued as a recall handle, or parts that cannot form one."""


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """Identifies the message, and the broker where it waits. `deliver_ms` is Unix ms."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str
    content: str = ""
    """Empty: any."""

    def __post_init__(self) -> None:
        for what, text in (
            ("topic", self.topic),
            ("broker name", self.broker_name),
            ("unique key", self.unique_key),
        ):
            if not text or not text.isprintable() or any(mark.isspace() for mark in text):
                raise RecallHandleIllegal(
                    f"the {what} {text[:40]!r} cannot be part of a recall handle: it must be "
                    "printable, not empty, and without spaces"
                )
        if self.content and _CONTENT.fullmatch(self.content) is None:
            raise RecallHandleIllegal("its content is not 16 hexadecimal digits")
        if not 0 <= self.deliver_ms < _TIME_END:
            raise RecallHandleIllegal(
                f"the time {self.deliver_ms} cannot be part of a recall handle: it is not in ms "
                "since 1970"
            )

    def encode(self) -> str:
        """The handle's text. Raises RecallHandleIllegal if it is longer than readers accept."""
        plain = f"{_VERSION} {self.topic} {self.broker_name} {self.deliver_ms} {self.unique_key}"
        if self.content:
            plain = f"{plain} {self.content}"
        text = base64.urlsafe_b64encode(plain.encode()).decode()
        if len(text) > HANDLE_CHARACTERS_MAX:
            raise RecallHandleIllegal(
                f"the recall handle would have {len(text)} characters, at most "
                f"{HANDLE_CHARACTERS_MAX} are allowed: shorten the topic or the broker's name"
            )
        return text

    @classmethod
    def decode(cls, text: str) -> Self:
        """The parts of a handle sent by a client, with or without padding.

        Raises RecallHandleIllegal for everything else; the error text does not repeat the handle,
        which could contain anything.
        """
        if len(text) > HANDLE_CHARACTERS_MAX:
            raise _illegal(f"it has {len(text)} characters, more than a handle ever has")
        if not text:
            raise _illegal("it is empty; only messages that arrive later have one")
        if _ALPHABET.fullmatch(text) is None:
            raise _illegal("it is not URL-safe Base64")
        try:
            data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            plain = data.decode()
        except (binascii.Error, UnicodeDecodeError):
            raise _illegal("it is not URL-safe Base64 of text") from None
        words = plain.split(" ")
        if words[0] != _VERSION:
            raise _illegal(f"it does not begin with {_VERSION}, the one version that is known")
        if len(words) != 5 and not (len(words) == 6 and _CONTENT.fullmatch(words[5])):
            raise _illegal("it does not name a topic, a broker, a time and a message")
        _, topic, broker_name, time_ms, unique_key, *content = words
        if re.fullmatch("[0-9]{1,19}", time_ms) is None:
            raise _illegal("its time is no number of ms since 1970")
        return cls(topic, broker_name, int(time_ms), unique_key, *content)


def _illegal(reason: str) -> RecallHandleIllegal:
    return RecallHandleIllegal(
        f"this is no recall handle: {reason}; use the one that came with the answer to the send"
    )
