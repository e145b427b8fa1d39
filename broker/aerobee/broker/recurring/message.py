"""PURE: the message of a run.

Owns: what identifies a run. Its time and its schedule are properties, and its message id follows
from the number under which the broker appended it, so the id is the same however often it is made.
"""

from __future__ import annotations

import hashlib
from typing import Final

from aerobee.broker.recurring.schedules import Definition, Schedule
from aerobee.runtime.errors import InvalidArgument, MessageIllegal, MessageTooLarge
from aerobee.store.format.properties import (
    PropertyIllegal,
    PropertyName,
    encode_properties,
)
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import HostAddress, RecordIllegal
from aerobee.store.format.reserved_properties import check_property

BODY_BYTES_MAX: Final = 64 * 1024
PROPERTIES_BYTES_MAX: Final = 16 * 1024
KEYS_MAX: Final = 64
SCHEDULE: Final = "AEROBEE_SCHEDULE"
"""Property of a run's message: its schedule."""
RUN_MS: Final = "AEROBEE_RUN_MS"
"""Property of a run's message: the time that the schedule names, Unix ms."""


def check_message(definition: Definition) -> None:
    """Raises MessageIllegal, MessageTooLarge, InvalidArgument: no run could be sent."""
    if not definition.body:
        raise MessageIllegal("the message has no body; send at least one byte")
    if len(definition.body) > BODY_BYTES_MAX:
        raise MessageTooLarge(
            f"the body of a schedule has at most {BODY_BYTES_MAX} bytes, not "
            f"{len(definition.body)}: send where the rest can be read"
        )
    if any(not key or " " in key for key in definition.keys) or len(definition.keys) > KEYS_MAX:
        raise InvalidArgument(f"at most {KEYS_MAX} keys, none of them empty or with a space")
    try:
        for name, value in definition.properties.items():
            check_property(name, value)
        size = len(encode_properties(_properties(definition, 0, "")))
    except PropertyIllegal as error:
        raise MessageIllegal(str(error)) from error
    if size > PROPERTIES_BYTES_MAX:
        raise MessageIllegal(
            f"tag, keys and properties of a schedule take at most {PROPERTIES_BYTES_MAX} bytes, "
            f"not {size}"
        )


def run_record(
    schedule: Schedule,
    time_ms: int,
    number: int,
    *,
    broker_name: str,
    now_ms: int,
    host: HostAddress,
) -> bytes:
    """The record of a run. Raises RecordIllegal: it does not fit."""
    definition = schedule.definition
    identity = f"{broker_name} {number} {schedule.name} {schedule.created_ms} {time_ms}"
    message_id = hashlib.sha256(identity.encode()).hexdigest()[:32].upper()
    try:
        properties = encode_properties(_properties(definition, time_ms, message_id))
    except PropertyIllegal as error:
        raise RecordIllegal(str(error)) from None
    return encode_record(
        topic=definition.topic.encode(),
        body=definition.body,
        properties=properties,
        born_timestamp_ms=now_ms,
        born_host=host,
        store_host_ipv6=host.is_ipv6,
    )


def _properties(definition: Definition, time_ms: int, message_id: str) -> dict[str, str]:
    properties: dict[str, str] = {**definition.properties}
    if definition.tag:
        properties[PropertyName.TAGS] = definition.tag
    if definition.keys:
        properties[PropertyName.KEYS] = " ".join(definition.keys)
    properties |= {
        PropertyName.UNIQ_KEY: message_id,
        SCHEDULE: definition.name,
        RUN_MS: str(time_ms),
    }
    return properties
