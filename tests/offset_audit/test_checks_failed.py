"""Messages that failed: what is lost on its way, what nearly is, and what cannot be known."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.data.compare import TROUBLE
from aerobee.offset_audit.checks.data.failed import DEAD_LETTER_ORIGIN, RETRY_LOST, RETRY_TWICE
from aerobee.offset_audit.checks.data.waiting import failed_by_group
from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.frame import Engine
from aerobee.offset_audit.outputs.console import failed_line
from aerobee.offset_audit.tables import STATES
from tests.offset_audit.table_builders import BROKER, CLUSTER, NOW_MS, TableRows, as_rows, frame

pytestmark = pytest.mark.slow

SETTLED_MS = NOW_MS - 60_000


class Stores:
    """Stores at rest, each one situation."""

    def __init__(self) -> None:
        self.rows = TableRows()

    def store(self, name: str, **broker: Any) -> None:
        of = {"broker_name": name, "store": f"/{name}"}
        self.rows.add(
            "brokers", **{"broker_name": name, "role": "STORE", "entries_until_ms": NOW_MS} | broker
        )
        self.rows.add("log_ranges", **of, begin=1_000, end=9_000)
        self.rows.add("topics", broker_name=name, topic="%RETRY%g")
        self.rows.add("queue_ranges", **of, topic="t", queue_id=0, last_offset=50)

    def copy(self, name: str, state: str, **values: Any) -> None:
        given = {
            "broker_name": name,
            "store": f"/{name}",
            "state": state,
            "topic": {"WAITING": "SCHEDULE_TOPIC_XXXX", "RETRY": "%RETRY%g", "DEAD": "%DLQ%g"}[
                state
            ],
            "queue_id": 0,
            "queue_offset": 3,
            "position": 5_000,
            "store_ms": SETTLED_MS,
            "group": "g",
            "attempt": 1,
            "origin_topic": "t",
            "origin_id": "id",
        }
        self.rows.add("failed", **{**given, **values})

    def said(self, name: str, kind: str, number: int, **values: Any) -> None:
        given = {"journal_offset": number, "timestamp_ms": SETTLED_MS, "group": "g", "offset": 7}
        self.rows.add("journal", broker_name=name, kind=kind, number=number, **{**given, **values})

    def found(self, engine: Engine, check: Check) -> dict[str, tuple[Any, ...]]:
        """Severity, number, evidence by store."""
        tables = replace(self.rows.tables(engine), compared=frame(engine, TROUBLE, []))
        rows = as_rows(check.run(tables, Limits(now_ms=NOW_MS)))
        assert all(row.group == "g" for row in rows)
        return {row.broker_name: (row.severity, row.affected, row.evidence) for row in rows}


def test_a_copy_that_waits_no_more_must_be_in_the_retry_topic(engine: Engine) -> None:
    stores = Stores()
    for name in ("lost", "again", "earlier-attempt", "waits", "rolled", "young", "damaged"):
        stores.store(name)
        values = {"store_ms": NOW_MS + 1} if name == "young" else {}
        stores.copy(name, "WAITING", **values)
    stores.copy("again", "RETRY", position=5_100)
    stores.copy("earlier-attempt", "RETRY", position=5_100, attempt=0)
    of_waiting = {"kind": "DELAY", "broker_name": "waits", "store": "/waits", "position": 5_000}
    stores.rows.add("pending", **of_waiting)
    stores.copy("rolled", "WAITING", topic="rmq_sys_wheel_timer", position=5_100)
    rolled = {"kind": "TIMER", "broker_name": "rolled", "store": "/rolled", "position": 5_100}
    stores.rows.add("pending", **rolled)
    stores.rows.add("faults", broker_name="damaged", store="/damaged", kind="HOLE", position=5_100)
    stores.rows.add("brokers", broker_name="no-topic", role="STORE", entries_until_ms=NOW_MS)
    stores.copy("no-topic", "WAITING")
    found = stores.found(engine, RETRY_LOST)
    assert found.keys() == {"lost", "earlier-attempt"}
    assert found["lost"][:2] == ("CRITICAL", 1)
    assert "0 sent back without a copy, 1 with a copy" in found["lost"][2]


def test_what_the_journal_says_is_copied_has_its_copy(engine: Engine) -> None:
    stores = Stores()
    for name in ("lost", "whole", "not-yet", "young", "spoke"):
        stores.store(name)
        later = {"timestamp_ms": NOW_MS + 1} if name == "young" else {}
        stores.said(name, "sentBack", 4, **later)
        stores.said(name, "copied", 4 if name == "not-yet" else 5)
        stores.copy(name, "DEAD", number=4 if name == "whole" else 3)
    stores.rows.add("brokers", broker_name="spoke")
    found = stores.found(engine, RETRY_LOST)
    assert found.keys() == {"lost"}
    assert found["lost"][:2] == ("CRITICAL", 1)
    assert "1 sent back without a copy, 0 with" in found["lost"][2]
    assert "t/0, queue offset 7" in found["lost"][2]


def test_what_failed_once_has_one_copy_in_each_log(engine: Engine) -> None:
    stores = Stores()
    for name in ("twice", "sound", "replica", "damaged"):
        stores.store(name)
        stores.copy(name, "WAITING", number=4)
        stores.copy(name, "RETRY", position=5_100)  # moved on: no number of the journal
        stores.copy(name, "WAITING", number=5, position=5_200)
    for name in ("twice", "damaged"):
        stores.copy(name, "DEAD", number=4, position=5_300, queue_offset=8)
    stores.rows.add("faults", broker_name="damaged", store="/damaged", kind="HOLE", position=5_100)
    found = stores.found(engine, RETRY_TWICE)
    assert found.keys() == {"twice"}
    assert found["twice"][:2] == ("ERROR", 1)
    assert (
        "SCHEDULE_TOPIC_XXXX/0, queue offset 3, and %DLQ%g/0, queue offset 8" in found["twice"][2]
    )


def test_what_has_one_copy_comes_once_to_the_retry_topic(engine: Engine) -> None:
    stores = Stores()
    for name in ("twice", "once", "sent-back-twice", "copy-removed", "apache"):
        stores.store(name)
        if name not in ("copy-removed", "apache"):
            stores.copy(name, "WAITING", number=4, position=5_000)
        stores.copy(name, "RETRY", position=5_200, queue_offset=8)
        if name != "once":
            stores.copy(name, "RETRY", position=5_400, queue_offset=9)
    stores.copy("apache", "WAITING", position=5_000)
    stores.copy("sent-back-twice", "WAITING", number=6, position=5_300)
    found = stores.found(engine, RETRY_TWICE)
    assert found.keys() == {"twice"}
    assert found["twice"][:2] == ("ERROR", 1)
    assert "first: %RETRY%g/0, queue offset 8, and %RETRY%g/0, queue offset 9" in found["twice"][2]


def test_dead_letters_name_a_message_that_their_log_had(engine: Engine) -> None:
    stores = Stores()
    origin = {"origin_queue_id": 0, "origin_position": 2_000}
    letters: dict[str, dict[str, Any]] = {
        "right": {**origin, "origin_offset": 50},
        "of-apache": {},
        "unnamed": {"origin_topic": None},
        "too-far": {**origin, "origin_offset": 51},
        "other-queue": {**origin, "origin_queue_id": 1, "origin_offset": 0},
        "removed-meanwhile": {**origin, "origin_position": 999, "origin_offset": 51},
    }
    for name, values in letters.items():
        stores.store(name)
        stores.copy(name, "DEAD", **values)
    stores.copy("too-far", "DEAD", origin_topic=None, position=5_100)
    stores.copy("right", "RETRY", origin_topic=None)
    found = stores.found(engine, DEAD_LETTER_ORIGIN)
    assert {name: one[:2] for name, one in found.items()} == {
        "unnamed": ("WARNING", 1),
        "too-far": ("ERROR", 2),
        "other-queue": ("ERROR", 1),
    }
    assert "names t/0, queue offset 51, which that queue never had" in found["too-far"][2]


def test_each_message_of_a_group_is_in_one_state(engine: Engine) -> None:
    rows = TableRows()

    def state(topic: str, queue_id: int, lag: int | None, **values: Any) -> dict[str, Any]:
        place = {"cluster": CLUSTER, "broker_name": BROKER, "group": "g", "topic": topic}
        names = names_of(STATES)
        end = None if lag is None else 5 + lag
        known = {**place, "queue_id": queue_id, "committed_offset": 5, "max_offset": end}
        known |= {"lag": lag, **values}
        return {name: known.get(name) for name in names}

    def sent_back(offset: int, timestamp_ms: int = 9, **values: Any) -> None:
        given = {"group": "g", "offset": offset, "timestamp_ms": timestamp_ms, "journal_offset": 1}
        rows.add("journal", kind="sentBack", **{**given, **values})

    for offset in (4, 5, 7, 7):  # the first is behind the committed offset
        sent_back(offset)
    sent_back(8, group="other")
    rows.add("journal", kind="reset", group="g", queue_id=1, timestamp_ms=20)
    sent_back(6, queue_id=1)  # taken back by the reset
    for _ in range(2):
        rows.add("pending", kind="DELAY", real_topic="%RETRY%g")
    for replica in (0, 1):
        rows.add("queues", topic="%DLQ%g", broker_id=replica, min_offset=1, max_offset=5 - replica)
        rows.add("queues", topic="%RETRY%new", broker_id=replica, min_offset=0, max_offset=6)
    rows.add("queues", topic="%RETRY%g", max_offset=30)
    for offset in (0, 1, 1):  # retention removed the first
        settled = {"group": "CID_RMQ_SYS_DEAD_LETTERS", "topic": "%DLQ%g", "offset": offset}
        rows.add("journal", kind="resent", journal_offset=1, timestamp_ms=9, **settled)
    # It is in the retry topic again, or finished there.
    settled = {"group": "CID_RMQ_SYS_DEAD_LETTERS", "topic": "%DLQ%g", "offset": 2}
    rows.add("journal", kind="returned", journal_offset=1, timestamp_ms=9, **settled)
    states = [
        state("t", 0, 10),
        state("t", 1, 20),
        state("%RETRY%g", 0, 4),
        state("%RETRY%new", 0, 1, group="elsewhere", broker_name="broker-b"),
        state("t", 0, 99, group="sound"),
        state("%RETRY%unknown", 0, None, group="unknown"),
        state("t", 0, 1, group="unknown"),
    ]
    rows.add("queues", topic="%DLQ%unknown", min_offset=0, max_offset=1)
    tables, progress = rows.tables(engine), frame(engine, STATES, states)
    found = as_rows(failed_by_group(tables, progress, knows_waiting=True))
    assert {row.group: tuple(row[2:]) for row in found} == {
        # Whether the copy of the one that the reset took back is finished, no one knows.
        "g": (40, None, 28, 2, 4, 2, 1, None),
        "new": (None, None, None, 0, 6, 0, 0, 0),
        "elsewhere": (None, None, None, 0, 1, 0, 0, 0),
        "unknown": (6, None, 1, 0, None, 1, 0, 0),
    }
    found = as_rows(failed_by_group(tables, progress, knows_waiting=False))
    assert {row.waiting for row in found} == {None}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("topic", "kind", "messages", "waiting"),
    [
        ("%RETRY%g", "DELAY", 3, 3),
        (None, "TIMER", 3, 0),  # for a topic that is gone
        (None, "DELAY", 3, None),
        (None, "DELAY", None, None),
    ],
)
def test_how_many_wait_to_come_again_is_told_by_brokers_that_know_it(
    engine: Engine, topic: str | None, kind: str, messages: int | None, waiting: int | None
) -> None:
    rows = TableRows()
    rows.add("queues", topic="%DLQ%g", min_offset=0, max_offset=1)
    rows.add("waiting", topic=topic, kind=kind, messages=messages)
    found = failed_by_group(rows.tables(engine), frame(engine, STATES, []), knows_waiting=True)
    assert [(row.waiting, row.dead) for row in as_rows(found)] == [(waiting, 1)]


def history(chance: random.Random) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """What the journal says after some reading, failing and resetting of one queue of ten messages,
    and what is true then: how many messages and copies are where."""
    sent, committed, events = 10, 0, 0
    journal: list[dict[str, Any]] = []
    copies: list[tuple[int, str]] = []  # the message, and where its copy is
    sent_back: set[int] = set()  # since the newest reset below it
    for at_ms in range(1, chance.randrange(2, 25)):
        step = chance.random()
        if step < 0.6 and committed < sent:
            if chance.random() < 0.5:
                events += 1
                sent_back.add(committed)
                place = {"offset": committed, "journal_offset": events, "timestamp_ms": at_ms}
                journal.append({"kind": "sentBack", **place})
                copies.append((committed, chance.choice(["waiting", "again", "dead"])))
            committed += 1
        elif step < 0.75:
            committed = chance.randrange(committed + 1)
            place = {"offset": committed, "journal_offset": 0, "timestamp_ms": at_ms}
            journal.append({"kind": "reset", **place})
            sent_back = {each for each in sent_back if each < committed}
        elif copies:
            index = chance.randrange(len(copies))
            message, where = copies.pop(index)
            if where == "waiting":
                copies.append((message, "again"))
            elif (where == "again" and chance.random() < 0.5) or where == "dead":
                copies.append((message, "dead"))
    true = {where: sum(one == where for _, one in copies) for where in ("waiting", "again", "dead")}
    with_copy = {message for message, _ in copies if message in sent_back and message < committed}
    # A message is unread, or its newest copy says where it is, or it is finished.
    true |= {"committed": committed, "finished": committed - len(with_copy)}
    return journal, true


def test_states_exclude_each_other_after_any_resets_retries_delays_and_dead_letters(
    engine: Engine,
) -> None:
    rows = TableRows()
    chance = random.Random(7)
    states, expected = [], {}
    names = names_of(STATES)
    for number in range(80):
        group = f"g{number}"
        journal, true = history(chance)
        for each in journal:
            rows.add("journal", group=group, **each)
        for _ in range(true["waiting"]):
            rows.add("pending", kind="DELAY", real_topic=f"%RETRY%{group}")
        place = {"cluster": CLUSTER, "broker_name": BROKER, "group": group, "queue_id": 0}
        known = {"topic": "t", "committed_offset": true["committed"], "max_offset": 10}
        states.append({**place, **known, "lag": 10 - true["committed"]})
        if true["again"]:
            rows.add("queues", topic=f"%RETRY%{group}", min_offset=0, max_offset=true["again"])
        if true["dead"]:
            rows.add("queues", topic=f"%DLQ%{group}", min_offset=0, max_offset=true["dead"])
        expected[group] = true
    table = frame(engine, STATES, [{name: one.get(name) for name in names} for one in states])
    found = as_rows(failed_by_group(rows.tables(engine), table, knows_waiting=True))
    assert len(found) > 30
    sure = 0
    for row in found:
        true = expected[row.group]
        assert (row.waiting, row.again, row.dead) == (true["waiting"], true["again"], true["dead"])
        assert row.unread == 10 - true["committed"]
        if row.finished is not None:
            sure += 1
            parts = row.finished + row.unread + row.waiting + row.again + row.dead - row.twice
            assert parts == row.sent == 10
            assert row.finished == true["finished"], (row, true)
    assert sure > len(found) / 2


def test_a_reset_below_a_dead_letter_leaves_nothing_finished_and_nothing_negative(
    engine: Engine,
) -> None:
    rows = TableRows()
    rows.add("journal", kind="sentBack", group="g", offset=5, journal_offset=1, timestamp_ms=9)
    rows.add("journal", kind="reset", group="g", offset=0, journal_offset=2, timestamp_ms=20)
    rows.add("queues", topic="%DLQ%g", min_offset=0, max_offset=1)
    values = {"cluster": CLUSTER, "broker_name": BROKER, "group": "g", "topic": "t", "queue_id": 0}
    values |= {"committed_offset": 0, "max_offset": 111, "lag": 111}
    table = frame(engine, STATES, [{name: values.get(name) for name in names_of(STATES)}])
    (row,) = as_rows(failed_by_group(rows.tables(engine), table, knows_waiting=True))
    assert (row.sent, row.finished, row.unread, row.dead, row.twice) == (111, 0, 111, 1, 1)
    told = failed_line(row.asDict())
    assert told == "111 sent: 111 unread, 1 dead, 1 of these counted twice, since a reset"
