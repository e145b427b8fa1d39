"""Which message a client may ask to recall, before it arrives."""

from __future__ import annotations

from aerobee.rocketmq_api.rules.message_types import MessageType
from aerobee.rocketmq_api.rules.refusals import Reason, Refused
from aerobee.store.format.recall_handle import RecallHandle, RecallHandleIllegal


def handle_of(text: str, topic: str) -> RecallHandle:
    """What a client's handle names. Raises Refused with ILLEGAL_MESSAGE_ID, also if that is a
    message of another topic."""
    try:
        handle = RecallHandle.decode(text)
    except RecallHandleIllegal as error:
        raise Refused(Reason.ILLEGAL_MESSAGE_ID, str(error)) from None
    if handle.topic != topic:
        raise names_nothing("it belongs to another topic")
    return handle


def check_recallable(topic: str, accepted: tuple[MessageType, ...]) -> None:
    """Raises Refused with TYPE_CONFLICT if the topic accepts no delayed messages."""
    if MessageType.DELAY not in accepted:
        raise Refused(
            Reason.TYPE_CONFLICT,
            f"topic {topic} takes no delayed messages, so none of it can be recalled",
        )


def names_nothing(reason: str) -> Refused:
    """The error for a handle of no message here."""
    return Refused(Reason.ILLEGAL_MESSAGE_ID, f"the recall handle names no message here: {reason}")
