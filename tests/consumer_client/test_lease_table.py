"""What a member may believe about its leases, and until when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.consumer_client.lease_table import (
    HeldQueue,
    LeaseTable,
    QueueKey,
    safety_margin_s,
)

Q0, Q1 = QueueKey("t", 0), QueueKey("t", 1)


def joined(at_s: float = 100.0, timeout_ms: int = 10_000) -> LeaseTable:
    table = LeaseTable()
    assert table.on_joined(timeout_ms, [], sent_s=at_s) == []
    return table


def test_the_margin_is_a_tenth_and_at_least_200_ms() -> None:
    assert safety_margin_s(10_000) == 1.0
    assert safety_margin_s(1_000) == 0.2


def test_nothing_is_trusted_before_the_first_answer() -> None:
    table = LeaseTable()
    assert not table.is_trusted(0.0)
    table.want(Q0)
    assert not table.on_granted(Q0, 7, 0.0)


def test_a_shorter_session_after_a_restart_of_the_broker_ends_the_longer_belief() -> None:
    table = LeaseTable()
    table.on_joined(30_000, [], sent_s=100.0)
    table.want(Q0)
    assert table.on_granted(Q0, 7, 101.0)
    table.on_joined(10_000, [HeldQueue(Q0, 7)], sent_s=102.0)
    assert table.deadline_s == 111.0


def test_the_deadline_counts_from_the_sending_of_the_acknowledged_heartbeat() -> None:
    table = joined(at_s=100.0)
    assert table.deadline_s == 109.0
    first = table.on_heartbeat_sent(102.5)
    second = table.on_heartbeat_sent(105.0)
    assert table.deadline_s == 109.0
    table.on_heartbeat_ack(first)
    assert table.deadline_s == 111.5
    table.on_heartbeat_ack(second)
    assert table.deadline_s == 114.0
    table.on_heartbeat_ack(first)
    table.on_heartbeat_ack(99)
    assert table.deadline_s == 114.0


def test_an_acknowledgement_after_the_session_was_given_up_brings_nothing_back() -> None:
    table = joined()
    table.want(Q0)
    assert table.on_granted(Q0, 7, 101.0)
    sequence = table.on_heartbeat_sent(102.0)
    assert table.lose_all() == [HeldQueue(Q0, 7)]
    table.on_heartbeat_ack(sequence)
    assert not table.is_trusted(102.0)
    assert table.held() == []
    assert table.wishes() == [Q0]


def test_a_grant_that_is_not_wanted_or_too_late_is_given_back() -> None:
    table = joined()
    assert not table.on_granted(Q0, 7, 101.0)
    table.want(Q0)
    assert not table.on_granted(Q0, 7, 109.0)
    assert table.on_granted(Q0, 7, 108.9)


def test_withdrawing_a_wish_and_releasing_a_lease_say_different_things() -> None:
    table = joined()
    assert table.want(Q0)
    assert not table.want(Q0)
    assert table.unwant(Q0) == 0
    assert table.unwant(Q0) is None
    table.want(Q0)
    table.on_granted(Q0, 7, 101.0)
    assert table.unwant(Q0) == 7
    assert table.held() == []


def test_only_the_held_epoch_can_be_revoked() -> None:
    table = joined()
    table.want(Q0)
    table.on_granted(Q0, 7, 101.0)
    assert not table.on_revoked(Q0, 6)
    assert table.epoch_of(Q0) == 7
    assert table.on_revoked(Q0, 7)
    assert table.wishes() == [Q0]


def test_leases_that_a_new_stream_does_not_confirm_are_lost() -> None:
    table = joined()
    for key, epoch in ((Q0, 7), (Q1, 8)):
        table.want(key)
        table.on_granted(key, epoch, 101.0)
    lost = table.on_joined(10_000, [HeldQueue(Q1, 8)], sent_s=105.0)
    assert lost == [HeldQueue(Q0, 7)]
    assert table.held() == [HeldQueue(Q1, 8)]
    assert table.deadline_s == 114.0


def test_a_confirmed_lease_that_was_given_up_meanwhile_stays_given_up() -> None:
    table = joined()
    assert table.on_joined(10_000, [HeldQueue(Q0, 7)], sent_s=101.0) == []
    assert table.epoch_of(Q0) is None


@given(
    timeout_ms=st.integers(1_000, 20_000),
    steps=st.lists(
        st.tuples(
            st.floats(0.01, 3.0),  # until the next heartbeat is sent
            st.floats(0.0, 5.0),  # until the broker receives it
            st.floats(0.0, 5.0),  # until the answer is back
            st.booleans(),  # whether it gets through
        ),
        max_size=20,
    ),
)
def test_the_member_always_stops_before_the_broker_ends_its_session(
    timeout_ms: int, steps: list[tuple[float, float, float, bool]]
) -> None:
    """Any delays and losses: as seen at every moment, by events in order of time."""
    events: list[tuple[float, int, str, int]] = [(0.0, 0, "received", 0)]
    now_s = 0.0
    for number, (pause_s, there_s, back_s, arrives) in enumerate(steps, start=1):
        now_s += pause_s
        events.append((now_s, number, "sent", number))
        if arrives:
            events.append((now_s + there_s, number, "received", number))
            events.append((now_s + there_s + back_s, number, "acked", number))
    table = joined(at_s=0.0, timeout_ms=timeout_ms)
    broker_end_s = timeout_ms / 1_000
    sequences: dict[int, int] = {}
    for time_s, _, kind, number in sorted(events, key=lambda event: (event[0], event[1])):
        if kind == "sent":
            sequences[number] = table.on_heartbeat_sent(time_s)
        elif kind == "received" and time_s < broker_end_s:
            broker_end_s = max(broker_end_s, time_s + timeout_ms / 1_000)
        elif kind == "received":
            break  # the session has ended there: UnknownMember instead of an answer
        elif number in sequences:
            table.on_heartbeat_ack(sequences[number])
        assert table.deadline_s < broker_end_s
