"""Where a group begins, for all protocols alike."""

from __future__ import annotations

from aerobee.rocketmq_api.rules.group_rules import begin_offset


def test_a_new_group_gets_all_messages_unless_some_were_removed() -> None:
    assert begin_offset(0, 9) == 0
    assert begin_offset(4, 9) == 9
