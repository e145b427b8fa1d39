"""An event that repeats becomes one line with its count, and no event is lost uncounted."""

from __future__ import annotations

import io
import json
import logging
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.runtime.clock import ManualClock, SystemClock
from aerobee.runtime.log import EventHandler, JsonFormatter, log_event
from aerobee.runtime.log_limit import EVENTS_MAX, FIELDS_ATTRIBUTE, Collapsed, RepeatLimit


def record(
    event: str, logger: str = "aerobee.broker", level: int = logging.INFO
) -> logging.LogRecord:
    return logging.LogRecord(logger, level, __file__, 1, event, (), None)


def test_beyond_the_rate_one_line_stands_for_all_that_came() -> None:
    clock = ManualClock()
    limit = RepeatLimit(clock, 3)
    assert [limit.passes(record("lost")) for _ in range(10)] == [True] * 3 + [False] * 7
    assert limit.take_due() == []
    assert limit.due_in_s() == pytest.approx(1.0)
    clock.advance_ms(1_000)
    (collapsed,) = limit.take_due()
    assert (collapsed.record.msg, collapsed.repeated) == ("lost", 7)
    assert limit.due_in_s() is None
    assert limit.passes(record("lost"))


def test_other_events_loggers_and_levels_have_a_rate_of_their_own() -> None:
    limit = RepeatLimit(ManualClock(), 1)
    assert limit.passes(record("lost"))
    assert not limit.passes(record("lost"))
    assert limit.passes(record("found"))
    assert limit.passes(record("lost", "aerobee.nameserver"))
    assert limit.passes(record("lost", level=logging.ERROR))


@pytest.mark.parametrize("field", ["group", "topic", "broker", "broker_id", "replica"])
def test_one_thing_in_trouble_does_not_hide_another(field: str) -> None:
    limit = RepeatLimit(ManualClock(), 1)

    def passes(name: str) -> bool:
        line = record("lost", level=logging.WARNING)
        setattr(line, FIELDS_ATTRIBUTE, {field: name, "reason": object()})
        return limit.passes(line)

    assert [passes(name) for name in ("a", "a", "b", "b", "c")] == [True, False, True, False, True]


def raised(error: Exception) -> logging.LogRecord:
    """The line of a bug, as the error border and gRPC write them."""
    line = record("a servicer failed because of a bug", level=logging.ERROR)
    try:
        raise error
    except Exception as caught:
        line.exc_info = (type(caught), caught, caught.__traceback__)
    return line


def test_a_bug_that_repeats_is_written_and_counted_and_hides_no_other() -> None:
    limit = RepeatLimit(ManualClock(), 1)

    def elsewhere() -> logging.LogRecord:
        line = record("a servicer failed because of a bug", level=logging.ERROR)
        try:
            raise KeyError("x")
        except KeyError as caught:
            line.exc_info = (type(caught), caught, caught.__traceback__)
        return line

    assert [limit.passes(raised(KeyError(n))) for n in range(4)] == [True, False, False, False]
    assert limit.passes(raised(ValueError())), "another type"
    assert limit.passes(elsewhere()), "another place"
    (collapsed,) = limit.take_all()
    assert collapsed.repeated == 3
    assert collapsed.record.exc_info is not None, "the last one, with its traceback"


def test_without_a_limit_everything_passes() -> None:
    limit = RepeatLimit(ManualClock(), 0)
    assert all(limit.passes(record("lost")) for _ in range(1_000))


def test_texts_that_vary_without_end_take_bounded_memory() -> None:
    limit = RepeatLimit(ManualClock(), 2)
    passed = sum(limit.passes(record(f"text {number}")) for number in range(10 * EVENTS_MAX))
    assert passed == EVENTS_MAX + 2  # those beyond share one rate
    assert sum(each.repeated for each in limit.take_all()) == 10 * EVENTS_MAX - passed


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 700)), max_size=200))
def test_lines_and_counts_add_up_to_the_events(events: list[tuple[str, int]]) -> None:
    clock = ManualClock()
    limit = RepeatLimit(clock, 2)
    told: dict[str, int] = {}

    def tell(collapsed: list[Collapsed]) -> None:
        for each in collapsed:
            told[each.record.msg] = told.get(each.record.msg, 0) + each.repeated

    for event, pause_ms in events:
        clock.advance_ms(pause_ms)
        tell(limit.take_due())
        if limit.passes(record(event)):
            told[event] = told.get(event, 0) + 1
    tell(limit.take_all())
    assert told == {event: [name for name, _ in events].count(event) for event in told}
    assert sum(told.values()) == len(events)


def logging_to(stream: io.StringIO, per_second_max: int) -> tuple[logging.Logger, EventHandler]:
    handler = EventHandler(stream, RepeatLimit(SystemClock(), per_second_max))
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("aerobee.test")
    logger.addHandler(handler)
    return logger, handler


def test_the_count_is_written_by_itself_when_nothing_else_is_logged() -> None:
    stream = io.StringIO()
    logger, handler = logging_to(stream, 2)
    for number in range(50):
        log_event(logger, "lost", number=number)
    assert stream.getvalue().count("\n") == 2
    deadline_s = time.monotonic() + 10
    while stream.getvalue().count("\n") < 3:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    last = json.loads(stream.getvalue().splitlines()[-1])
    assert (last["event"], last["repeated"], last["number"]) == ("lost", 48, 49)
    handler.close()


def test_what_is_held_back_at_the_end_is_written_then() -> None:
    stream = io.StringIO()
    logger, handler = logging_to(stream, 1)
    for _ in range(5):
        log_event(logger, "lost")
    handler.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.get("repeated", 1) for line in lines] == [1, 4]
