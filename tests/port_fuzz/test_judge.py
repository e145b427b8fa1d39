"""The judge of the campaign complains of what it should."""

from __future__ import annotations

import pytest

from tests.port_fuzz.clerk import Waits
from tests.port_fuzz.judge import (
    FELT_S_MAX,
    Machine,
    complaints_of,
    felt,
    lost_or_doubled,
    watch,
)
from tests.port_fuzz.watchman import Log, Seen

QUIET = Machine(Waits())


def log_of(*took_s: float, watch: str = "attack") -> Log:
    return Log([Seen(watch, at, at + s, at + s, 1, "broker-a") for at, s in enumerate(took_s)])


def test_one_slow_message_is_told_and_its_machine_is_not_blamed() -> None:
    level = watch(log_of(0.01, 0.02, watch="level"), "level", QUIET)
    slow_s = FELT_S_MAX + 0.03
    during = log_of(0.01, slow_s)
    told = complaints_of(level, watch(during, "attack", QUIET))
    assert len(told) == 4, told  # p99.9 and maximum, of sends and of deliveries
    assert "above its level" in told[0]
    # Its broker waited for 50 ms of it; another broker's waits are no excuse.
    looks = [0.0, 1.0, 1.05, 1.1, 9.0]
    waits = {"broker-a": [0.0, 0.0, 0.05, 0.05, 0.05]}
    assert complaints_of(level, watch(during, "attack", Machine(Waits(looks, waits)))) == []
    waits = {"broker-b": waits["broker-a"]}
    assert complaints_of(level, watch(during, "attack", Machine(Waits(looks, waits)))) == told


def test_waits_at_the_same_time_count_once_and_in_proportion_between_two_looks() -> None:
    waited_s = {"a": [0.0, 0.4, 0.4], "b": [5.0, 5.3, 5.5], "c": [0.0, 1.0, 2.0]}
    machine = Machine(Waits([10.0, 11.0, 12.0], waited_s))
    assert machine.late_s(("a", "b"), 0.0, 20.0) == pytest.approx(0.4 + 0.2)
    assert machine.late_s(("a", "b"), 10.5, 11.5) == pytest.approx(0.2 + 0.1)
    assert felt([(10.0, 13.0, ("a", "b"))], machine).max_s == pytest.approx(2.4)
    assert felt([(10.0, 13.0, ("a", "b"))], machine).raw_max_s == 3.0


def test_lost_and_doubled_messages_and_failed_sends_are_told() -> None:
    log = log_of(0.01, 0.01, 0.01)
    assert lost_or_doubled(log.messages, log.errors) == []
    log.messages[0].times = 0
    log.messages[1].times = 2
    log.errors.append("2: Busy: later")
    log.messages[2].stored_s, log.messages[2].times = 0.0, 0  # not acknowledged, not there
    told = lost_or_doubled(log.messages, log.errors)
    assert [line.split()[0] for line in told] == ["1", "1", "1"], told
