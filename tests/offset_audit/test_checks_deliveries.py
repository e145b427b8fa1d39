"""What groups were given against what was stored, minute by minute: what is proven, what is not.

Each store is one situation, so that the check runs once over all of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.data import tier_imbalance
from aerobee.offset_audit.frames.frame import Engine
from tests.offset_audit.table_builders import NOW_MS, TableRows

pytestmark = pytest.mark.slow

MINUTE = NOW_MS // 60_000 - 100
JOURNAL = "AEROBEE_OFFSET_JOURNAL"


class Log:
    """A store whose topic `t` gets messages minute by minute, as does its journal of commits."""

    def __init__(self, rows: TableRows, name: str, first_offset: int = 0) -> None:
        self._rows = rows
        self._name = name
        self._ends = {("t", 0): first_offset, ("t", 1): first_offset, (JOURNAL, 0): 0}
        self._position = 0
        rows.add("brokers", broker_name=name, role="STORE")

    def minute(self, number: int, *, t0: int = 0, t1: int = 0) -> None:
        """So many messages come to the two queues."""
        self._stored("t", number, t0 + t1)
        for queue_id, messages in enumerate((t0, t1)):
            if messages:
                self._range("t", queue_id, messages)

    def commit(self, number: int, queue_id: int, offset: int, **values: Any) -> None:
        self._rows.add(
            "journal",
            **{
                "broker_name": self._name,
                "journal_offset": self._ends[JOURNAL, 0],
                "group": "g",
                "queue_id": queue_id,
                "offset": offset,
                "timestamp_ms": 7,  # clocks count for nothing
                **values,
            },
        )
        self._stored(JOURNAL, number, 1)
        self._range(JOURNAL, 0, 1)

    def _stored(self, topic: str, number: int, messages: int) -> None:
        self._rows.add(
            "minutes",
            broker_name=self._name,
            tier="STORED",
            topic=topic,
            minute=MINUTE + number,
            messages=messages,
            is_whole=True,
        )

    def _range(self, topic: str, queue_id: int, messages: int, **values: Any) -> None:
        first = self._ends[topic, queue_id]
        self._ends[topic, queue_id] += messages
        begin, self._position = self._position, self._position + 100 * messages
        self._rows.add(
            "queue_ranges",
            **{
                "broker_name": self._name,
                "store": f"/{self._name}",
                "topic": topic,
                "queue_id": queue_id,
                "first_offset": first,
                "last_offset": first + messages - 1,
                "messages": messages,
                "disorders": 0,
                "first_position": begin,
                "last_position": self._position - 100,
                **values,
            },
        )

    def lose(self, queue_id: int, messages: int) -> None:
        """The queue counts on as if there had been so many more."""
        self._ends["t", queue_id] += messages

    def begin_again(self, queue_id: int) -> None:
        """The topic is deleted and made anew: its queue counts from 0."""
        self._ends["t", queue_id] = 0


def findings(rows: TableRows, engine: Engine) -> list[tuple[Any, ...]]:
    found = tier_imbalance.run(rows.tables(engine), Limits(now_ms=NOW_MS)).collect()
    assert all(one["check"] == "TIER_IMBALANCE" and one["evidence"] for one in found)
    columns = ("broker_name", "topic", "group", "affected", "severity")
    return sorted(tuple(one[name] for name in columns) for one in found)


def test_what_was_given_before_it_was_stored_is_told_with_its_number(engine: Engine) -> None:
    rows = TableRows()
    log = Log(rows, "early")
    log.minute(0, t0=50, t1=50)
    log.commit(0, 0, 50)
    log.commit(1, 1, 75)  # 25 more than there were, and later there are
    log.minute(3, t1=90)
    log.commit(3, 1, 140)
    one_queue = Log(rows, "hidden")
    one_queue.minute(0, t0=50, t1=50)
    one_queue.commit(1, 1, 75)  # what the group has not read of the other queue may hide it
    one_queue.minute(3, t1=90)
    jitter = Log(rows, "early-though-time-fell-in-a-minute")
    jitter.minute(0, t0=50)
    jitter.commit(0, 0, 57)
    jitter.minute(3, t0=90)
    rows.add(
        "faults",
        broker_name="early-though-time-fell-in-a-minute",
        kind="TIME_BACKWARD",
        store_ms=MINUTE * 60_000 + 5,
        back_ms=1,
    )
    removed = Log(rows, "early-in-a-log-that-begins-late", 1_000)
    removed.minute(0, t0=5, t1=5)
    removed.commit(0, 0, 1_005)
    removed.commit(0, 1, 1_008)
    removed.minute(1, t1=5)
    assert findings(rows, engine) == [
        ("early", "t", "g", 25, "CRITICAL"),
        ("early-in-a-log-that-begins-late", "t", "g", 3, "CRITICAL"),
        ("early-though-time-fell-in-a-minute", "t", "g", 7, "CRITICAL"),
    ]


@pytest.mark.thorough
def test_what_cannot_be_proven_is_not_told(engine: Engine) -> None:
    rows = TableRows()
    healthy = Log(rows, "healthy")
    for number in range(5):
        healthy.minute(number, t0=10, t1=10)
        healthy.commit(number, 0, 10 * number + 10)
        healthy.commit(number, 1, 10 * number + 9)
    healthy.commit(5, 1, 50)
    healthy.commit(6, 0, 0, kind="reset")
    healthy.commit(7, 0, 50)

    system = Log(rows, "system")
    system.minute(0, t0=1)
    system.commit(0, 0, 9, group="CID_RMQ_SYS_TRANS")
    system.minute(9, t0=20)

    reset = Log(rows, "reset")
    reset.minute(0, t0=1)
    reset.commit(0, 0, 9, kind="reset")
    reset.commit(0, 0, 9, kind="image")
    reset.minute(9, t0=20)

    gap = Log(rows, "gap")
    gap.minute(0, t0=5)
    gap.lose(0, 10)
    gap.commit(0, 0, 15)
    gap.minute(9, t0=20)

    anew = Log(rows, "made-anew", 10)
    anew.minute(0, t0=5)
    anew.commit(0, 0, 15)
    anew.begin_again(0)
    anew.minute(1, t0=10)

    clock = Log(rows, "clock")
    clock.minute(0, t0=5)
    clock.commit(0, 0, 15)
    clock.minute(9, t0=10)
    at_border = {"store_ms": MINUTE * 60_000 - 1, "back_ms": 1}
    rows.add("faults", broker_name="clock", store="/clock", kind="TIME_BACKWARD", **at_border)

    wrong = Log(rows, "wrong-time")
    wrong.minute(0, t0=5)
    wrong.commit(0, 0, 15)
    wrong.minute(9, t0=10)
    rows.add("faults", broker_name="wrong-time", store="/w", kind="BAD_TIME", position=5)

    answered = Log(rows, "answered")
    answered.minute(0, t0=5)
    answered.commit(0, 0, 15)
    answered.minute(9, t0=10)
    rows.add("brokers", broker_name="answered", role="MASTER")

    gone = Log(rows, "queue-without-messages")
    gone.minute(0, t0=5)
    gone.commit(0, 1, 700)  # all of that queue was removed with the log's begin
    gone.minute(9, t0=5)

    same_minute = Log(rows, "same-minute")
    same_minute.minute(0, t0=5)
    same_minute.commit(1, 0, 7)
    same_minute.minute(1, t0=5)
    assert findings(rows, engine) == []


@pytest.mark.thorough
def test_commits_are_placed_in_their_minute_however_many_records_the_journal_has(
    engine: Engine,
) -> None:
    rows = TableRows()
    log = Log(rows, "long")
    log.minute(0, t0=500)
    for number in range(300):
        log.commit(number // 200, 0, number)
    log.commit(1, 0, 507)
    log.commit(2, 0, 508)
    log.minute(3, t0=500)
    log.commit(3, 0, 1_000)
    assert findings(rows, engine) == [("long", "t", "g", 8, "CRITICAL")]
