"""When a message arrives, as its sender says it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from aerobee.client_core.message import Message
from aerobee.client_core.schedule import SCHEDULE_BYTES_MAX, Schedule
from aerobee.runtime.errors import MessageIllegal, PropertiesTooLarge
from aerobee.store.format.delay_levels import DELAY_MAX_MS

NOW = 1_700_000_000_500


@pytest.mark.parametrize(
    ("arguments", "schedule"),
    [
        ({}, None),
        ({"delay": 0}, None),
        ({"delay": timedelta(0)}, None),
        ({"delay": 1.5}, Schedule(delay_ms=1_500)),
        ({"delay": 30}, Schedule(delay_ms=30_000)),
        ({"delay": 0.0001}, Schedule(delay_ms=1)),
        ({"delay": timedelta(days=365)}, Schedule(delay_ms=365 * 86_400_000)),
        ({"delay": timedelta(microseconds=1_001)}, Schedule(delay_ms=2)),
        ({"deliver_at": NOW}, Schedule(deliver_ms=NOW)),
        ({"deliver_at": datetime.fromtimestamp(NOW / 1_000, UTC)}, Schedule(deliver_ms=NOW)),
        (
            {"deliver_at": datetime.fromtimestamp(NOW / 1_000, timezone(timedelta(hours=-5)))},
            Schedule(deliver_ms=NOW),
        ),
        (
            {"deliver_at": datetime(2026, 1, 1, microsecond=1, tzinfo=UTC)},
            Schedule(deliver_ms=1_767_225_600_001),
        ),
        ({"delay_level": 3}, Schedule(level=3)),
    ],
)
def test_a_message_says_when_it_arrives(
    arguments: dict[str, Any], schedule: Schedule | None
) -> None:
    assert Message("t", b"x", **arguments).schedule == schedule


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"delay": -1}, "must not be negative"),
        ({"delay": timedelta(microseconds=-1_001)}, "must not be negative"),
        ({"delay": float("nan")}, "timedelta or seconds"),
        ({"delay": float("inf")}, "timedelta or seconds"),
        ({"delay": True}, "timedelta or seconds"),
        ({"delay": "30s"}, "timedelta or seconds"),
        ({"delay": timedelta(days=3_661)}, "at most ten years"),
        ({"deliver_at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"deliver_at": 1.5}, "datetime or Unix milliseconds"),
        ({"deliver_at": 0}, "after 1970"),
        ({"deliver_at": datetime(1969, 1, 1, tzinfo=UTC)}, "after 1970"),
        ({"delay_level": 0}, "from 1 to 1000"),
        ({"delay_level": 1_001}, "from 1 to 1000"),
        ({"delay_level": 2.0}, "whole number"),
        ({"delay": 1, "delay_level": 1}, "exclude each other"),
        ({"delay": 0, "deliver_at": NOW}, "exclude each other"),
    ],
)
def test_a_time_that_cannot_be_is_refused_where_it_is_written(
    arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(MessageIllegal, match=reason):
        Message("t", b"x", **arguments)


def test_a_delay_begins_when_the_message_is_sent() -> None:
    schedule = Schedule(delay_ms=1_500)
    assert schedule.request(NOW) == b"TIMER_DELIVER_MS\x01%d\x02" % (NOW + 1_500)
    assert schedule.request(NOW + 7) == b"TIMER_DELIVER_MS\x01%d\x02" % (NOW + 1_507)
    assert Schedule(deliver_ms=5).request(NOW) == b"TIMER_DELIVER_MS\x015\x02"
    assert Schedule(level=18).request(NOW) == b"DELAY\x0118\x02"


def test_ten_years_are_counted_from_when_it_is_sent() -> None:
    far = Schedule(deliver_ms=NOW + DELAY_MAX_MS + 1)
    with pytest.raises(MessageIllegal, match="ten years"):
        far.check(NOW)
    far.check(NOW + 1)


def test_room_is_kept_for_what_brokers_add() -> None:
    fits = {"a": "x" * (32_767 - 66 - 3)}
    Message("t", b"x", properties=fits)
    with pytest.raises(PropertiesTooLarge, match="at most 32101 fit"):
        Message("t", b"x", properties=fits, delay=1)
    Message("t", b"x", properties={"a": fits["a"][SCHEDULE_BYTES_MAX:]}, delay=1)
