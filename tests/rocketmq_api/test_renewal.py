"""How long messages stay invisible because their client works on them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.rocketmq_api.rules.renewal import Holder, RenewalRules, visible_ms

RULES = RenewalRules()
TAKEN_MS = 1_000_000
HOURS_3_MS = 3 * 3_600_000


def test_a_message_stays_with_a_client_that_is_heard_of() -> None:
    assert visible_ms(TAKEN_MS, Holder(heard_ms=TAKEN_MS), RULES) == TAKEN_MS + 60_000
    heard_ms = TAKEN_MS + 50_000
    assert visible_ms(TAKEN_MS, Holder(heard_ms=heard_ms), RULES) == heard_ms + 60_000


def test_the_client_was_heard_of_when_it_took_the_message() -> None:
    """Also when a broker began its run later and has not heard of it yet."""
    assert visible_ms(TAKEN_MS, Holder(heard_ms=0), RULES) == TAKEN_MS + 60_000
    run_began_ms = TAKEN_MS + 30_000
    assert visible_ms(TAKEN_MS, Holder(heard_ms=run_began_ms), RULES) == run_began_ms + 60_000


def test_a_client_that_goes_leaves_its_messages_within_a_second() -> None:
    gone_ms = TAKEN_MS + 5_000
    holder = Holder(heard_ms=gone_ms, gone_ms=gone_ms)
    assert visible_ms(TAKEN_MS, holder, RULES) == gone_ms + 1_000
    assert visible_ms(TAKEN_MS, None, RULES) == TAKEN_MS + 1_000


def test_what_a_client_took_after_it_came_back_is_its_own() -> None:
    holder = Holder(heard_ms=TAKEN_MS, gone_ms=TAKEN_MS - 5_000)
    assert visible_ms(TAKEN_MS, holder, RULES) == TAKEN_MS + 60_000


def test_no_client_keeps_a_message_for_more_than_three_hours() -> None:
    holder = Holder(heard_ms=TAKEN_MS + HOURS_3_MS - 1)
    assert visible_ms(TAKEN_MS, holder, RULES) == TAKEN_MS + HOURS_3_MS


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_hearing_of_a_client_again_never_ends_it_earlier(
    taken_ms: int, heard_ms: int, later_ms: int
) -> None:
    before = visible_ms(taken_ms, Holder(heard_ms=heard_ms), RULES)
    after = visible_ms(taken_ms, Holder(heard_ms=heard_ms + later_ms), RULES)
    assert taken_ms < before <= after <= taken_ms + RULES.held_ms_max
