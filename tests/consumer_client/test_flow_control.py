"""Credit: enough to keep a queue busy, never beyond its limits by more than a frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.consumer_client.flow_control import CreditWindow, FlowLimits
from aerobee.consumer_client.process_queue import Entry, ProcessQueue
from aerobee.runtime import errors

FRAME_MESSAGES_MAX = 64


@pytest.mark.thorough
@given(
    limits=st.builds(
        FlowLimits,
        messages_max=st.integers(1, 500),
        bytes_max=st.integers(1, 200_000),
        span_max=st.integers(1, 1_000),
    ),
    sizes=st.lists(st.integers(91, 3_000), min_size=300, max_size=300),
    finishing=st.lists(st.integers(0, 40), min_size=60, max_size=60),
)
def test_limits_hold_and_everything_gets_through(
    limits: FlowLimits, sizes: list[int], finishing: list[int]
) -> None:
    """A broker that sends frames while credit lasts, and a listener of changing speed."""
    queue: ProcessQueue[None] = ProcessQueue(0)
    window = CreditWindow(limits)
    window.on_subscribed()
    credit = 0
    sent = 0
    most_count = most_bytes = 0
    turn = 0
    while queue.safe_offset < len(sizes):
        credit += window.grant(
            cached_count=queue.cached_count, cached_bytes=queue.cached_bytes, span=queue.span
        )
        before = queue.cached_count, queue.cached_bytes
        while credit > 0 and sent < len(sizes):
            frame: list[Entry[None]] = []
            for offset in range(sent, min(sent + FRAME_MESSAGES_MAX, len(sizes))):
                if frame and sum(entry[1] for entry in frame) >= credit:
                    break
                frame.append((offset, sizes[offset], None))
            frame_bytes = sum(entry[1] for entry in frame)
            credit -= frame_bytes
            sent += len(frame)
            window.on_received(frame_bytes, len(frame))
            queue.add(frame, sent)
            assert before[1] < limits.bytes_max
            assert before[0] < limits.messages_max
        most_count = max(most_count, queue.cached_count)
        most_bytes = max(most_bytes, queue.cached_bytes)
        # At least one now and then, or nothing would ever move.
        finished = finishing[turn % len(finishing)] or (turn % 3 == 0)
        queue.finish(queue.take(finished) if finished else [])
        turn += 1
        assert turn < 10_000, "the queue came to a stop"
    assert most_bytes <= limits.bytes_max + FRAME_MESSAGES_MAX * 3_000


def test_nothing_is_granted_at_a_limit() -> None:
    limits = FlowLimits(messages_max=10, bytes_max=10_000, span_max=20)
    for cached in (
        {"cached_count": 10, "cached_bytes": 1, "span": 1},
        {"cached_count": 1, "cached_bytes": 10_000, "span": 1},
        {"cached_count": 1, "cached_bytes": 1, "span": 20},
    ):
        assert CreditWindow(limits).grant(**cached) == 0


def test_single_finished_messages_cost_no_command_each() -> None:
    limits = FlowLimits()
    window = CreditWindow(limits)
    first = window.grant(cached_count=0, cached_bytes=0, span=0)
    assert first == limits.messages_max * 1_024
    window.on_received(10 * 1_024, 10)
    assert window.grant(cached_count=9, cached_bytes=9 * 1_024, span=9) == 0
    window.on_received(490 * 1_024, 490)
    assert window.grant(cached_count=100, cached_bytes=100 * 1_024, span=99) > 0


def test_little_room_is_enough_while_the_broker_has_no_credit_left() -> None:
    """It would send nothing until a quarter of the room is free, however long that takes."""
    window = CreditWindow(FlowLimits())
    window.on_received(window.grant(cached_count=0, cached_bytes=0, span=0), 1_000)
    assert window.in_flight_bytes == 0
    assert window.grant(cached_count=1_000, cached_bytes=1_000 * 1_024, span=1_000) == 0
    assert window.grant(cached_count=999, cached_bytes=999 * 1_024, span=999) == 1_024


def test_limits_below_one_are_refused() -> None:
    with pytest.raises(errors.InvalidArgument):
        FlowLimits(messages_max=0)
