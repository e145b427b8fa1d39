"""How a stored message is called by those who consume it."""

from __future__ import annotations

from aerobee.store.format.dead_letter_fields import origin_of
from aerobee.store.format.properties import PropertyName
from aerobee.store.format.record import Record


def message_id_of(record: Record) -> str:
    """The sender's id, or the broker's if the sender set none."""
    return record.properties.get(PropertyName.UNIQ_KEY) or origin_of(record).message_id
