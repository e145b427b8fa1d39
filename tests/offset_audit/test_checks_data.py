"""What lies in the stores: each check's finding, what nearly is one, and what is not known.

Each store is one situation, so that every check runs once over all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.data import CHECKS
from aerobee.offset_audit.checks.data.compare import TROUBLE
from aerobee.offset_audit.checks.data.waiting import waiting_by_topic
from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.frame import Engine, Frame
from aerobee.offset_audit.tables import FINDINGS, KEY_ROWS, Tables
from tests.offset_audit.table_builders import NOW_MS, TableRows, as_rows, frame

pytestmark = pytest.mark.slow

LIMITS = Limits(now_ms=NOW_MS)
MINUTE = NOW_MS // 60_000 - 10


def found(name: str, tables: Tables) -> list[dict[str, Any]]:
    """The findings of one check, in the order of stores."""
    check = next(one for one in CHECKS if one.name == name)
    rows = check.run(tables, LIMITS)
    assert rows.columns == names_of(FINDINGS)
    findings = rows.collect()
    assert all(one["evidence"] and one["check"] == name for one in findings)
    return sorted(
        findings, key=lambda one: (one["broker_name"], one["topic"] or "", one["affected"] or 0)
    )


def told(findings: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(one[column] for column in columns) for one in findings]


def trouble(engine: Engine, *rows: dict[str, Any]) -> Frame:
    """What the comparison found, for checks that only put it into words."""
    common = {
        "cluster": "c",
        "broker_id": 0,
        "topic": "t",
        "queue_id": 0,
        "messages": 1,
        "first_offset": 7,
        "last_offset": 7,
        "first_position": 700,
        "last_position": 700,
    }
    names = names_of(TROUBLE)
    given = [{**common, "store": f"/{row['broker_name']}", **row} for row in rows]
    return frame(engine, TROUBLE, [{name: row.get(name) for name in names} for row in given])


def test_lost_messages_are_gaps_unless_damage_explains_them(engine: Engine) -> None:
    rows = TableRows()
    rows.add("brokers", broker_name="slave", role="SLAVE", epoch=3)
    many = [
        {"broker_name": "many", "class": "LOST", "queue_id": queue_id, "messages": 2}
        for queue_id in range(20)
    ]
    tables = replace(
        rows.tables(engine),
        compared=trouble(
            engine,
            {"broker_name": "both", "class": "LOST", "messages": 3},
            {"broker_name": "both", "class": "HOLE", "messages": 2, "last_offset": 11},
            {"broker_name": "explained", "class": "LOST", "fault_position": 700},
            {"broker_name": "slave", "class": "LOST"},
            {"broker_name": "other", "class": "UNLISTED"},
            *many,
        ),
    )
    findings = found("GAP", tables)
    assert told(findings, "broker_name", "queue_id", "affected", "severity") == [
        ("both", 0, 5, "CRITICAL"),
        ("many", None, 40, "CRITICAL"),
        ("slave", 0, 1, "ERROR"),
    ]
    assert "t/0, queue offsets 7 to 11; 3 of them are still listed" in findings[0]["evidence"]
    assert "20 queues of 1 topic, first t/" in findings[1]["evidence"]
    assert findings[0]["command"] == "aerobee store verify /both"


def test_unlisted_records_and_duplicates_are_told_by_queue(engine: Engine) -> None:
    tables = replace(
        TableRows().tables(engine),
        compared=trouble(
            engine,
            {"broker_name": "cut", "class": "UNLISTED", "messages": 60_000, "last_offset": 60_006},
            {"broker_name": "twice", "class": "DUPLICATE", "detail": "the other is at byte 9"},
            {"broker_name": "former", "class": "FORMER", "messages": 5},
            {"broker_name": "anew", "class": "AGAIN", "messages": 8, "first_offset": 0},
            {"broker_name": "to-0", "class": "DUPLICATE", "first_offset": 0, "last_offset": 0},
        ),
    )
    assert told(found("MISSING_ENTRY", tables), "broker_name", "affected", "severity") == [
        ("cut", 60_000, "ERROR"),
        ("former", 5, "INFO"),
    ]
    assert told(found("DUPLICATE", tables), "broker_name", "affected", "severity") == [
        ("anew", 8, "INFO"),
        ("to-0", 1, "ERROR"),
        ("twice", 1, "ERROR"),
    ]


def test_damage_is_told_by_file_and_kind_with_what_it_costs(engine: Engine) -> None:
    rows = TableRows()

    def fault(name: str, kind: str, position: int | None = 700, **values: Any) -> None:
        place = {"broker_name": name, "store": f"/{name}", "file": "commitlog/0"}
        rows.add("faults", **{**place, "kind": kind, "position": position, **values})

    fault("body", "BAD_CRC", topic="t", queue_id=0, queue_offset=7)
    fault("body", "BAD_CRC", 900, topic="t", queue_id=1, queue_offset=3)
    fault("segment", "MISSING_SEGMENT", size=1_000)
    fault("harmless-tail", "TORN", size=50)
    fault("lost-tail", "TORN", size=50)
    fault("checkpoint", "BAD_CHECKPOINT", None)
    fault("size", "BAD_FILE_SIZE", None)
    fault("clock", "TIME_BACKWARD", back_ms=9_000)
    fault("time", "BAD_TIME", topic="t", queue_id=0, store_ms=1 << 62, back_ms=1 << 62)
    fault("time-a-little", "BAD_TIME", store_ms=5, back_ms=4_000)
    fault("index", "INDEX_SLOT")
    fault("table", "BAD_CONFIG", None, file="config/topics.json", detail="no JSON")
    fault("table-changed", "CHANGED_TABLE", None, file="config/consumerOffset.json", detail="so")
    fault("table-rows", "LOST_ROW", None, file="config/topics.json", detail="topic t has queues")
    fault("queue-file", "MISSING_FILE", None, topic="t", queue_id=0)
    rows.add("brokers", broker_name="body", role="STORE", broker_id=0)
    rows.add("registry_groups", broker_name="body", master_id=1)
    difference = "the entry says ..., the record ..."
    tables = replace(
        rows.tables(engine),
        compared=trouble(
            engine,
            {"broker_name": "segment", "class": "LOST", "messages": 5, "fault_position": 700},
            {"broker_name": "segment", "class": "HOLE", "messages": 2, "fault_position": 700},
            {"broker_name": "lost-tail", "class": "LOST", "fault_position": 700},
            {"broker_name": "tags", "class": "TAGS_CODE", "detail": difference},
            {"broker_name": "entry", "class": "BAD_ENTRY", "detail": difference},
            {"broker_name": "header", "class": "HEADER", "detail": "the record says ..."},
        ),
    )
    findings = found("CORRUPT", tables)
    assert told(findings, "broker_name", "affected", "severity") == [
        ("body", 2, "ERROR"),
        ("checkpoint", None, "WARNING"),
        ("entry", 1, "ERROR"),
        ("harmless-tail", None, "INFO"),
        ("header", 1, "CRITICAL"),
        ("lost-tail", 1, "CRITICAL"),
        ("segment", 7, "CRITICAL"),
        ("size", None, "ERROR"),
        ("tags", 1, "ERROR"),
        ("time", 1, "ERROR"),
    ]
    assert (
        "2 times in commitlog/0, first at byte 700, t/0 queue offset 7" in (findings[0]["evidence"])
    )
    assert "7 messages lost in it" in findings[6]["evidence"]
    of_tables = found("BAD_CONFIG", tables)
    assert told(of_tables, "broker_name", "severity") == [
        ("table", "ERROR"),
        ("table-changed", "WARNING"),
        ("table-rows", "WARNING"),
    ]
    assert "lacks what it must have: topic t has queues." in of_tables[2]["evidence"]


def test_the_index_is_missed_key_by_key(engine: Engine) -> None:
    rows = TableRows()
    keys: list[dict[str, Any]] = []

    def store(name: str, logged: list[int], indexed: list[int], **broker: Any) -> None:
        origin = {"broker_name": name, "store": f"/{name}"}
        rows.add("brokers", broker_name=name, role="STORE", **broker)
        for source, positions in (("LOG", logged), ("INDEX", indexed)):
            if not positions:
                continue
            rows.add(
                "index_ranges",
                **origin,
                source=source,
                block=0,
                keys=len(positions),
                digest=sum(positions),
            )
            keys.extend(
                {
                    "cluster": "c",
                    "broker_id": 0,
                    **origin,
                    "source": source,
                    "position": position,
                    "key_hash": position % 3,
                    "topic": "t" if source == "LOG" else None,
                    "store_ms": position if source == "LOG" else None,
                }
                for position in positions
            )

    store("whole", [1, 2, 3], [1, 2, 3], keys_until_ms=100)
    store("some", [1, 2, 3], [1, 9], keys_until_ms=100)
    store("none", [1, 2], [], keys_until_ms=100)
    store("young", [1, 200], [1], keys_until_ms=100)
    store("growing", [1, NOW_MS], [1])
    store("more", [1], [1, 9], keys_until_ms=100)
    rows.add(
        "faults", broker_name="some", store="/some", kind="INDEX_SLOT", file="index/1", position=44
    )
    rows.add(
        "faults", broker_name="slot", store="/slot", kind="INDEX_SLOT", file="index/1", position=44
    )
    every = frame(engine, KEY_ROWS, keys)
    tables = replace(
        rows.tables(engine),
        key_rows=lambda blocks: every.join(blocks.select("store"), "store", "left_semi"),
    )
    findings = found("INDEX_MISSING", tables)
    assert told(findings, "broker_name", "affected", "severity") == [
        ("none", 2, "ERROR"),
        ("slot", 0, "ERROR"),
        ("some", 2, "ERROR"),
    ]
    assert (
        "would not find 2 keys of records between byte 2 and 3 of the log"
        in (findings[2]["evidence"])
    )
    assert "INDEX_SLOT in index/1 at byte 44" in findings[2]["evidence"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "severity"), [("HALF", "ERROR"), ("DELAY", "ERROR"), ("TIMER", "ERROR")]
)
def test_waiting_messages_are_overdue_only_while_their_broker_worked(
    engine: Engine, kind: str, severity: str
) -> None:
    rows = TableRows()

    def waiting(name: str, due_ms: int | None, **values: Any) -> None:
        place = {"broker_name": name, "store": f"/{name}", "topic": "waiting", "queue_id": 2}
        row = {"kind": kind, "queue_offset": 5, "position": 50, "due_ms": due_ms, "store_ms": 1}
        rows.add("pending", **{**place, **row, "real_topic": "orders", **values})

    def newest(name: str, store_ms: int) -> None:
        rows.add("queue_ranges", broker_name=name, store=f"/{name}", last_store_ms=store_ms)

    late_ms = NOW_MS - 90_000
    waiting("late", late_ms)
    waiting("late", late_ms - 1, queue_offset=4)
    newest("late", NOW_MS)
    waiting("resolved", late_ms, resolved=True)
    newest("resolved", NOW_MS)
    waiting("just-due", NOW_MS - 59_000)
    newest("just-due", NOW_MS)
    waiting("unknown", None)
    newest("unknown", NOW_MS)
    waiting("clock-behind", late_ms, store_ms=NOW_MS - 59_000)
    newest("clock-behind", NOW_MS)
    waiting("stopped-before", late_ms)
    newest("stopped-before", late_ms + 1_000)
    waiting("runs", late_ms)
    rows.add("brokers", broker_name="runs")
    waiting("backup", late_ms)
    newest("backup", late_ms + 1_000)
    rows.add("brokers", broker_name="backup")
    rows.add("brokers", broker_name="backup", role="STORE", appended_end=500)
    waiting("other", late_ms, kind="X")
    newest("other", NOW_MS)
    findings = found(f"{kind}_OVERDUE", rows.tables(engine))
    assert told(findings, "broker_name", "affected", "severity", "topic", "queue_id") == [
        ("late", 2, severity, "waiting", 2),
        ("runs", 1, severity, "waiting", 2),
    ]
    assert "the oldest, queue offset 4 at byte 50" in findings[0]["evidence"]
    assert "for topic orders" in findings[0]["evidence"]


def test_transactions_that_wait_for_an_operator_are_told_by_store(engine: Engine) -> None:
    rows = TableRows()

    def aside(name: str, offset: int, **values: Any) -> None:
        place = {"broker_name": name, "store": f"/{name}", "topic": "aside", "queue_id": 0}
        row = {"kind": "ASIDE", "queue_offset": offset, "store_ms": 5, "unique_key": f"id{offset}"}
        rows.add("pending", **place, **row, real_topic="orders", **values)

    aside("two", 7)
    aside("two", 4)
    aside("one", 1)
    aside("ended", 1, resolved=True)
    rows.add("pending", broker_name="other", store="/other", kind="HALF")
    findings = found("SET_ASIDE", rows.tables(engine))
    assert told(findings, "broker_name", "affected", "severity", "topic", "queue_id") == [
        ("one", 1, "WARNING", "aside", 0),
        ("two", 2, "WARNING", "aside", 0),
    ]
    assert "2 transactions wait for an operator" in findings[1]["evidence"]
    assert "queue offset 4 of aside, id id4, for topic orders" in findings[1]["evidence"]


def test_what_was_given_up_is_a_warning_if_its_topics_are_gone(engine: Engine) -> None:
    rows = TableRows()

    def given_up(name: str, topic: str | None, offset: int) -> None:
        place = {"broker_name": name, "store": f"/{name}", "topic": "waiting", "queue_id": 2}
        row = {"kind": "GIVEN_UP", "queue_offset": offset, "due_ms": 5, "resolved": True}
        rows.add("pending", **place, **row, real_topic=topic, reason=f"reason {offset}")

    for name in ("there", "gone", "damaged", "sound"):
        rows.add("topics", broker_name=name, topic="orders")
    given_up("there", "orders", 4)
    given_up("there", "no-more", 3)
    given_up("gone", "no-more", 3)
    given_up("damaged", None, 3)
    rows.add("pending", broker_name="sound", store="/sound", kind="DELAY", resolved=True)
    findings = found("GIVEN_UP", rows.tables(engine))
    assert told(findings, "broker_name", "affected", "severity", "topic", "queue_id") == [
        ("damaged", 1, "ERROR", "waiting", 2),
        ("gone", 1, "WARNING", "waiting", 2),
        ("there", 2, "ERROR", "waiting", 2),
    ]
    assert "queue offset 3, for topic no-more, was due at" in findings[2]["evidence"]
    assert "reason 3" in findings[2]["evidence"]


def test_what_waits_is_counted_by_the_topic_that_it_is_for(engine: Engine) -> None:
    rows = TableRows()

    def waiting(topic: str | None, kind: str, due_ms: int, **values: Any) -> None:
        rows.add("pending", real_topic=topic, kind=kind, due_ms=due_ms, **values)

    for due_ms in (7, 5, 9):
        waiting("orders", "TIMER", due_ms)
    waiting("orders", "TIMER", 4, broker_id=1)  # a replica that knows less
    waiting("orders", "TIMER", 1, resolved=True)
    waiting("orders", "TIMER", 8, broker_name="broker-b")
    waiting("orders", "DELAY", 6)
    waiting(None, "HALF", 3)
    live = {"kind": "TIMER", "first_due_ms": 2}
    rows.add("waiting", topic="orders", broker_name="broker-b", broker_id=1, messages=5, **live)
    rows.add("waiting", topic="orders", broker_name="broker-c", messages=10, **live)
    rows.add("waiting", topic=None, broker_name="broker-d", kind="DELAY", messages=None)
    found_rows = as_rows(waiting_by_topic(rows.tables(engine)))
    assert {(row.topic, row.kind, row.messages, row.first_due_ms) for row in found_rows} == {
        ("orders", "TIMER", 3 + 5 + 10, 2),
        ("orders", "DELAY", 1, 6),
        (None, "HALF", 1, 3),
    }


@pytest.mark.thorough
def test_tiers_are_compared_in_whole_settled_minutes(engine: Engine) -> None:
    rows = TableRows()

    def counts(name: str, tier: str, messages: int, minute: int = MINUTE, **values: Any) -> None:
        row = {"topic": "t", "is_whole": True, "minute": minute, "messages": messages}
        rows.add("minutes", broker_name=name, tier=tier, **{**row, **values})

    def span(name: str, first: int = MINUTE - 5, last: int = MINUTE + 9) -> None:
        for minute in (first, last):
            counts(name, "STORED", 1, minute, topic="always")

    for name in (
        "equal",
        "lost",
        "all-lost",
        "more-stored",
        "replicas",
        "cut",
        "partial",
        "claims",
    ):
        span(name, MINUTE + 1 if name == "cut" else MINUTE - 5)
    counts("equal", "ACKNOWLEDGED", 9)
    counts("equal", "STORED", 9)
    counts("lost", "ACKNOWLEDGED", 9)
    counts("lost", "STORED", 6)
    counts("all-lost", "ACKNOWLEDGED", 4)
    counts("more-stored", "ACKNOWLEDGED", 9)
    counts("more-stored", "STORED", 11)
    counts("replicas", "ACKNOWLEDGED", 9)
    counts("replicas", "STORED", 9)
    counts("replicas", "STORED", 2, broker_id=1)
    counts("cut", "ACKNOWLEDGED", 9)
    counts("partial", "ACKNOWLEDGED", 9)
    counts("partial", "STORED", 2, is_whole=False)
    counts("claims", "ACKNOWLEDGED", 9, is_whole=False)
    counts("claims", "ACKNOWLEDGED", 9, NOW_MS // 60_000)
    counts("unstored", "ACKNOWLEDGED", 9)
    for name in ("told-by-gap", "damaged", "wrong-time"):
        span(name)
        counts(name, "ACKNOWLEDGED", 9)
    rows.add("faults", broker_name="damaged", store="/damaged", kind="MISSING_SEGMENT", position=0)
    rows.add("faults", broker_name="wrong-time", store="/wrong-time", kind="BAD_TIME", position=0)
    rows.add("faults", broker_name="lost", store="/lost", kind="BAD_CRC", position=0)
    lost = trouble(engine, {"broker_name": "told-by-gap", "class": "HOLE", "messages": 9})
    findings = found("TIER_IMBALANCE", replace(rows.tables(engine), compared=lost))
    assert told(findings, "broker_name", "topic", "group", "affected", "severity") == [
        ("all-lost", "t", None, 4, "CRITICAL"),
        ("lost", "t", None, 3, "CRITICAL"),
    ]


def test_messages_beyond_the_queues_of_a_topic_are_told_by_topic(engine: Engine) -> None:
    rows = TableRows()
    for topic, count in (("one", 3), ("several", 2), ("empty", 3), ("whole", 4)):
        rows.add("topics", topic=topic, read_queue_count=1, write_queue_count=count)
        for queue_id in range(4):
            begin = 100 if topic == "empty" and queue_id == 3 else 90
            rows.add("queues", topic=topic, queue_id=queue_id, min_offset=begin)
    rows.add("queues", topic="unknown", queue_id=9)
    rows.add("topics", topic="rmq_sys_own", read_queue_count=1, write_queue_count=1)
    rows.add("queues", topic="rmq_sys_own", queue_id=9)
    rows.add("brokers", role="MASTER")
    rows.add("brokers", broker_id=1, role="SLAVE")
    rows.add("queues", broker_id=1, topic="whole", queue_id=9)
    findings = found("QUEUE_BEYOND", rows.tables(engine))
    assert told(findings, "topic", "queue_id", "affected", "severity") == [
        ("one", 3, 10, "WARNING"),
        ("several", None, 20, "WARNING"),
    ]
    assert findings[0]["evidence"] == (
        "10 messages of topic one are in queue 3 of broker-a, but the topic has only 3 queues "
        "there: nobody reads what is beyond."
    )
    assert "in 2 queues, the first of them 2, of broker-a" in findings[1]["evidence"]
    assert findings[0]["command"] == "aerobee topic show one"


@pytest.mark.thorough
def test_nothing_is_found_where_nothing_was_read(engine: Engine) -> None:
    tables = TableRows().tables(engine)
    for check in CHECKS:
        assert not check.run(tables, LIMITS).limit(1).collect(), check.name
