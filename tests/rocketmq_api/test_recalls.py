"""Which messages can be recalled, whatever protocol asks."""

from __future__ import annotations

import pytest

from aerobee.rocketmq_api.rules.message_types import MessageType
from aerobee.rocketmq_api.rules.recalls import check_recallable, handle_of
from aerobee.rocketmq_api.rules.refusals import Reason, Refused
from aerobee.store.format.recall_handle import RecallHandle

HANDLE = RecallHandle("orders", "broker-a", 1_700_000_000_000, "id-1", "")


def test_a_handle_names_the_message_that_it_was_made_for() -> None:
    assert handle_of(HANDLE.encode(), "orders") == HANDLE


@pytest.mark.parametrize("text", ["", "no handle", HANDLE.encode()[:-3]])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        handle_of(text, "orders")
    assert refused.value.reason is Reason.ILLEGAL_MESSAGE_ID


def test_a_handle_of_another_topic_is_refused() -> None:
    with pytest.raises(Refused, match="belongs to another topic") as refused:
        handle_of(HANDLE.encode(), "payments")
    assert refused.value.reason is Reason.ILLEGAL_MESSAGE_ID


def test_only_delayed_messages_can_be_recalled() -> None:
    check_recallable("orders", (MessageType.NORMAL, MessageType.DELAY))
    with pytest.raises(Refused, match="takes no delayed messages") as refused:
        check_recallable("orders", (MessageType.NORMAL,))
    assert refused.value.reason is Reason.TYPE_CONFLICT
