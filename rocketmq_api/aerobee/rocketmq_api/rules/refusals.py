"""Why a request is refused, in words that no protocol owns.

Rules raise `Refused` with a reason, and each protocol has one table of its codes for the reasons.
"""

from __future__ import annotations

from enum import Enum, auto

from aerobee.runtime.errors import InvalidArgument, TopicNotFound


class Reason(Enum):
    """Which rule a request breaks."""

    MALFORMED = auto()
    """A rule that has no reason of its own."""
    ILLEGAL_TOPIC = auto()
    ILLEGAL_GROUP = auto()
    """The name of a consumer group."""
    BODY_EMPTY = auto()
    BODY_TOO_LARGE = auto()
    PROPERTIES_TOO_LARGE = auto()
    ILLEGAL_PROPERTY = auto()
    ILLEGAL_TAG = auto()
    ILLEGAL_KEY = auto()
    ILLEGAL_MESSAGE_ID = auto()
    ILLEGAL_MESSAGE_GROUP = auto()
    ILLEGAL_DELIVERY_TIME = auto()
    TYPE_CONFLICT = auto()
    """The message has a type that its topic does not accept, or properties that exclude each
    other."""
    ILLEGAL_FILTER = auto()
    ILLEGAL_POLLING_TIME = auto()
    ILLEGAL_INVISIBLE_TIME = auto()
    ILLEGAL_HANDLE = auto()


class Refused(InvalidArgument):
    """A request that breaks a rule."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def topic_not_found(topic: str) -> TopicNotFound:
    """For a topic that does not exist; clients' own tests look for the first words."""
    return TopicNotFound(
        f"No topic route info in name server for the topic: {topic}. Create it with "
        f"`aerobee topic create {topic}`, or correct the name"
    )
