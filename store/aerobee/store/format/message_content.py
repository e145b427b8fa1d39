"""PURE: what tells a message from another one that its sender gave the same id.

Clients make ids, and two of them may make the same one: of one process id and one address in the
same second. So an id alone never says that two records are one message. A message that is sent
again has the same content, whichever queue, time or connection it is sent with.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from aerobee.store.format.properties import PropertyName, decode_properties
from aerobee.store.format.record_view import Record
from aerobee.store.format.reserved_properties import allowed_of

_N: Final = PropertyName
_SENDERS: Final = frozenset((_N.KEYS, _N.TAGS, _N.SHARDING_KEY, _N.CLIENT))
"""Besides users' own properties. Brokers set the others, or they differ from attempt to attempt."""


def content_of(record: Record) -> str:
    """16 hexadecimal digits, from the body's CRC and from what its sender said with it. The same
    while the message waits, is checked or moved."""
    return _digest(record.body_crc, record.properties)


def content_digest(body_crc: int, properties: bytes) -> str:
    """As `content_of`."""
    return _digest(body_crc, decode_properties(properties))


def _digest(body_crc: int, properties: Mapping[str, str]) -> str:
    told = sorted(
        item for item in properties.items() if item[0] in _SENDERS or allowed_of(item[0]) is None
    )
    text = repr((body_crc, told)).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8).hexdigest()


def client_mark(client_id: str) -> str:
    """For `PropertyName.CLIENT`: which client sent a message."""
    return blake2b(client_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def another_id(message_id: str, content: str) -> str:
    """The id of a message whose sender gave it the id of another one."""
    return f"{message_id}~{content}"


def id_before(another: str) -> str:
    """The sender's id in `another_id`; the same text if it is none."""
    return another.rpartition("~")[0] or another
