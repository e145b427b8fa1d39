"""A consumer's request for messages of one queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.rocketmq_remoting import fields as read
from aerobee.runtime.errors import InvalidArgument

COMMITS: Final = 1
WAITS: Final = 2
HAS_SUBSCRIPTION: Final = 4
MESSAGES_MAX: Final = 1_024
WAIT_MS_MAX: Final = 60_000


@dataclass(frozen=True, slots=True)
class Pull:
    """The fields of codes 11 and 361."""

    group: str
    topic: str
    queue_id: int
    offset: int
    messages_max: int
    bytes_max: int
    """0: as the broker likes."""
    commit_offset: int | None
    """The group has handled everything before."""
    wait_ms: int
    """How long to wait for a message if there is none."""
    subscription: str | None
    """What is wanted; None: what the client's last heart-beat said."""
    is_sql: bool
    subscription_version: int

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Pull:
        """Raises InvalidArgument."""
        flags = read.number(fields, "sysFlag", 0)
        messages_max = read.number(fields, "maxMsgNums")
        if messages_max <= 0:
            raise InvalidArgument(f"maxMsgNums is {messages_max}; ask for at least one message")
        wait_ms = read.number(fields, "suspendTimeoutMillis", 0) if flags & WAITS else 0
        return cls(
            read.text(fields, "consumerGroup"),
            read.text(fields, "topic"),
            read.number(fields, "queueId"),
            read.number(fields, "queueOffset"),
            min(messages_max, MESSAGES_MAX),
            max(0, read.number(fields, "maxMsgBytes", 0)),
            read.number(fields, "commitOffset", 0) if flags & COMMITS else None,
            min(max(0, wait_ms), WAIT_MS_MAX),
            fields.get("subscription", "*") if flags & HAS_SUBSCRIPTION else None,
            fields.get("expressionType") == "SQL92",
            read.number(fields, "subVersion", 0),
        )
