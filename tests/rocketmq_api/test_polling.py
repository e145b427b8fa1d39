"""How long a poll waits, how much it takes, how long that is invisible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.rocketmq_api.codes import status_of
from aerobee.rocketmq_api.receiving.polling import (
    batch_size,
    changed_invisible_ms,
    polling_ms,
    received_invisible_ms,
)
from aerobee.rocketmq_api.rules.polling import PollLimits
from aerobee.rocketmq_api.rules.refusals import Refused
from aerobee.rocketmq_api.times import duration
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2.service_pb2 import ChangeInvisibleDurationRequest, ReceiveMessageRequest

LIMITS = PollLimits()
HOURS_12_MS = 43_200_000


def receive(polling_ms: int | None = None, **fields: object) -> ReceiveMessageRequest:
    request = ReceiveMessageRequest(**fields)  # type: ignore[arg-type]
    if polling_ms is not None:
        request.long_polling_timeout.CopyFrom(duration(polling_ms))
    return request


@pytest.mark.parametrize(
    ("asked_ms", "remaining_ms", "waits_ms"),
    [
        # The client gives itself 3 s more than the poll.
        (20_000, 23_000, 20_000),
        (5_000, 8_000, 5_000),
        (10_000, 13_000, 10_000),
        # Clamped.
        (30_000, 33_000, 20_000),
        (1_000, 8_000, 5_000),
        (0, 8_000, 5_000),
        (40_000, 40_000, 20_000),
        # The deadline comes first.
        (20_000, 20_000, 19_900),
        (20_000, 12_000, 11_900),
        (20_000, 5_000, 4_900),
        # Does not say: half the request timeout is kept.
        (None, 23_000, 20_000),
        (None, 8_000, 6_500),
        (None, 6_000, 5_000),
    ],
)
def test_a_poll_waits_as_asked_and_ends_before_its_deadline(
    asked_ms: int | None, remaining_ms: int, waits_ms: int
) -> None:
    assert polling_ms(receive(asked_ms), LIMITS, remaining_ms=remaining_ms) == waits_ms


@pytest.mark.parametrize("asked_ms", [None, 0, 5_000, 20_000])
@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("5.0.3", v2.ILLEGAL_POLLING_TIME),
        ("5.1.2", v2.ILLEGAL_POLLING_TIME),
        ("5.0.0", v2.BAD_REQUEST),
        ("1.0.8", v2.BAD_REQUEST),
        ("", v2.BAD_REQUEST),
    ],
)
def test_a_deadline_that_leaves_no_time_is_refused(
    asked_ms: int | None, version: str, code: v2.Code
) -> None:
    with pytest.raises(Refused) as refused:
        polling_ms(receive(asked_ms), LIMITS, remaining_ms=4_999, client_version=version)
    assert status_of(refused.value).code == code


def test_the_request_timeout_of_the_clients_settings_counts() -> None:
    waits_ms = polling_ms(receive(), LIMITS, remaining_ms=20_000, request_timeout_ms=10_000)
    assert waits_ms == 15_000


@given(st.none() | st.integers(0, 1 << 60), st.integers(5_000, 1 << 60))
def test_no_poll_outlasts_its_deadline(asked_ms: int | None, remaining_ms: int) -> None:
    waits_ms = polling_ms(receive(asked_ms), LIMITS, remaining_ms=remaining_ms)
    assert 4_900 <= waits_ms <= min(remaining_ms - LIMITS.answer_ms, LIMITS.polling_ms_max)


@pytest.mark.parametrize(("asked", "taken"), [(-1, 1), (0, 1), (1, 1), (32, 32), (33, 32)])
def test_a_batch_has_1_to_32_messages(asked: int, taken: int) -> None:
    assert batch_size(receive(batch_size=asked), LIMITS) == taken


@pytest.mark.parametrize("ms", [10_000, 30_000, HOURS_12_MS])
def test_a_received_message_is_invisible_as_asked(ms: int) -> None:
    assert received_invisible_ms(receive(invisible_duration=duration(ms)), LIMITS) == ms


@pytest.mark.parametrize("ms", [0, 9_999, HOURS_12_MS + 1, 1 << 60])
def test_an_illegal_invisible_time_is_refused_unless_the_server_renews(ms: int) -> None:
    with pytest.raises(Refused) as refused:
        received_invisible_ms(receive(invisible_duration=duration(ms)), LIMITS)
    assert status_of(refused.value).code == v2.ILLEGAL_INVISIBLE_TIME
    renewed = receive(invisible_duration=duration(ms), auto_renew=True)
    assert received_invisible_ms(renewed, LIMITS) is None
    with pytest.raises(Refused):
        received_invisible_ms(receive(), LIMITS)


def test_a_change_may_make_it_visible_at_once() -> None:
    request = ChangeInvisibleDurationRequest()
    assert changed_invisible_ms(request, LIMITS) == 0
    for ms in (0, 3, HOURS_12_MS):
        request.invisible_duration.CopyFrom(duration(ms))
        assert changed_invisible_ms(request, LIMITS) == ms
    request.invisible_duration.CopyFrom(duration(HOURS_12_MS + 1))
    with pytest.raises(Refused) as refused:
        changed_invisible_ms(request, LIMITS)
    assert status_of(refused.value).code == v2.ILLEGAL_INVISIBLE_TIME
    request.invisible_duration.seconds = -1
    with pytest.raises(Refused):
        changed_invisible_ms(request, LIMITS)
