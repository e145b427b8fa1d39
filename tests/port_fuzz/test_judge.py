"""The judge of the campaign complains of what it should."""

from __future__ import annotations

from tests.port_fuzz.judge import (
    FELT_S_MAX,
    Machine,
    complaints_of,
    felt,
    lost_or_doubled,
    watch,
)
from tests.port_fuzz.watchman import Log, Seen

QUIET = Machine([])


def log_of(*took_s: float, watch: str = "attack") -> Log:
    return Log([Seen(watch, at, at + s, at + s, times=1) for at, s in enumerate(took_s)])


def test_one_slow_message_is_told_and_its_machine_is_not_blamed() -> None:
    level = watch(log_of(0.01, 0.02, watch="level"), "level", QUIET)
    slow_s = FELT_S_MAX + 0.03
    during = log_of(0.01, slow_s)
    told = complaints_of(level, watch(during, "attack", QUIET))
    assert len(told) == 4, told  # p99.9 and maximum, of sends and of deliveries
    assert "above its level" in told[0]
    # The machine slept for 50 ms of it: from 1.01 to 1.06.
    assert complaints_of(level, watch(during, "attack", Machine([(1.06, 0.05)]))) == []
    assert complaints_of(level, watch(during, "attack", Machine([(3.0, 0.5)]))) == told


def test_only_that_part_of_a_wait_counts_that_touches_the_message() -> None:
    machine = Machine([(1.0, 0.5), (2.0, 0.5)])  # 0.5 to 1.0, and 1.5 to 2.0
    assert machine.late_s(0.75, 1.75) == 0.5
    assert machine.late_s(1.0, 1.5) == 0.0
    assert felt([(0.0, 3.0)], machine).max_s == 2.0
    assert felt([(0.0, 3.0)], machine).raw_max_s == 3.0


def test_lost_and_doubled_messages_and_failed_sends_are_told() -> None:
    log = log_of(0.01, 0.01, 0.01)
    assert lost_or_doubled(log.messages, log.errors) == []
    log.messages[0].times = 0
    log.messages[1].times = 2
    log.errors.append("2: Busy: later")
    log.messages[2].stored_s, log.messages[2].times = 0.0, 0  # not acknowledged, not there
    told = lost_or_doubled(log.messages, log.errors)
    assert [line.split()[0] for line in told] == ["1", "1", "1"], told
