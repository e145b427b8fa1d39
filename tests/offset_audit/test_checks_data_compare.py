"""The log against the queue files: exactly the damage that was done, whatever the partitions."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.data.blocks import READ, judged_blocks
from aerobee.offset_audit.checks.data.compare import compare
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Engine
from tests.offset_audit.damaged_stores import (
    SIZE,
    UNTIL_MS,
    MadeStore,
    Record,
    Trouble,
    damaged,
    healthy,
    store_rows,
    with_rows,
)
from tests.offset_audit.table_builders import NOW_MS, TableRows

pytestmark = pytest.mark.slow

SEED = 20_261_121
STORES = 80


@pytest.mark.thorough
def test_the_comparison_finds_exactly_the_damage_that_was_done(engine: Engine) -> None:
    chance = random.Random(SEED)
    stores = [damaged(f"damaged-{number}", chance) for number in range(STORES)]
    stores += [healthy(f"healthy-{number}", chance) for number in range(10)]
    rows = TableRows()
    for store in stores:
        store_rows(rows, store, chance)
    tables = with_rows(rows.tables(engine), engine, stores)
    found: Counter[Trouble] = Counter()
    for row in compare(tables, Limits(now_ms=NOW_MS)).collect():
        key = (
            row["store"],
            row["topic"],
            row["queue_id"],
            row["class"],
            row["fault_position"] is not None,
        )
        found[key] += row["messages"]
    expected: Counter[Trouble] = Counter()
    for store in stores:
        expected += store.expected
    assert sum(expected.values()) > 400
    classes = {key[3] for key in expected}
    assert classes == {"LOST", "HOLE", "UNLISTED", "DUPLICATE", "HEADER", "TAGS_CODE", "BAD_ENTRY"}
    assert dict(found) == dict(expected)


def life(store: MadeStore, messages: int, *, first: int = 0) -> list[Record]:
    """Records of the one queue of a store, behind those that it has."""
    begin = SIZE * len(store.records)
    made = [
        Record("t", 0, first + number, begin + SIZE * number, 1, UNTIL_MS - 1_000)
        for number in range(messages)
    ]
    store.records += made
    return made


def of_lives() -> list[MadeStore]:
    """Queues that were deleted with their topic and made anew, and what may look so."""
    names = (
        *("anew", "anew-after-retention", "anew-after-one"),
        *("changed", "lost-first", "one-before", "copied"),
    )
    made = {name: MadeStore(name, topics={"t"}) for name in names}
    for name, first, messages in (
        ("anew", 0, 12),
        ("anew-after-retention", 40, 12),
        ("anew-after-one", 0, 1),
    ):
        life(made[name], messages, first=first)
        made[name].entries = [replace(one) for one in life(made[name], 5)]
    for name in names[3:]:
        made[name].entries = [replace(one) for one in life(made[name], 10)]
    made["changed"].records[1].queue_offset = 0
    del made["lost-first"].entries[:4]
    made["one-before"].records[3].queue_offset = 7
    del made["one-before"].entries[:4]
    made["copied"].entries.clear()
    return list(made.values())


@pytest.mark.thorough
def test_an_earlier_life_of_a_queue_is_no_damage_and_no_damage_passes_for_one(
    engine: Engine,
) -> None:
    rows, stores = TableRows(), of_lives()
    for store in stores:
        store_rows(rows, store, random.Random(SEED))
    rows.add("queues", broker_name="copied", min_offset=10, max_offset=10)
    own = TableRows()
    own.add("queues", broker_name="copied", min_offset=0, max_offset=10)
    tables = with_rows(rows.tables(engine), engine, stores)
    tables = replace(tables, store_queues=own.tables(engine).queues)
    found = {
        (row["store"], row["class"]): row["messages"]
        for row in compare(tables, Limits(now_ms=NOW_MS)).collect()
    }
    assert found == {
        ("anew", "AGAIN"): 5,
        ("anew-after-one", "AGAIN"): 1,
        ("changed", "DUPLICATE"): 1,
        ("lost-first", "UNLISTED"): 4,
        ("one-before", "UNLISTED"): 3,
        ("one-before", "DUPLICATE"): 1,
        ("copied", "UNLISTED"): 10,
    }, "what the broker itself says of its queues is not what its files should have"


@pytest.mark.thorough
def test_a_topic_that_was_made_anew_and_has_no_message_yet_misses_none(
    engine: Engine,
) -> None:
    names = ("empty", "young", "consumed", "has-an-end", "one-queue", "lost-queue", "no-tables")
    made = {name: MadeStore(name, topics={"t"}) for name in names}
    rows = TableRows()
    for name, store in made.items():
        former = life(store, 12)
        if name == "young":
            for one in former[-2:]:
                one.store_ms = UNTIL_MS + 1
        if name in ("one-queue", "lost-queue"):
            of_other = [replace(one, queue_id=1) for one in life(store, 4)]
            store.records[-4:] = of_other
            store.entries = [replace(one) for one in of_other]
        if name == "lost-queue":  # the queue went on beside the other one
            life(store, 1, first=12)
        if name == "no-tables":
            store.topics.clear()
        end = 12 if name == "has-an-end" else 0
        rows.add("queues", broker_name=name, min_offset=0, max_offset=end)
        store_rows(rows, store, random.Random(SEED))
    rows.add("commits", broker_name="consumed", group="g", offset=3)
    rows.add("commits", broker_name="empty", group="g", offset=0)
    tables = with_rows(rows.tables(engine), engine, list(made.values()))
    found = {
        (row["store"], row["class"]): row["messages"]
        for row in compare(tables, Limits(now_ms=NOW_MS)).collect()
    }
    assert found == {
        ("empty", "FORMER"): 12,
        ("young", "FORMER"): 10,
        ("consumed", "UNLISTED"): 12,
        ("has-an-end", "UNLISTED"): 12,
        ("one-queue", "FORMER"): 12,
        ("lost-queue", "UNLISTED"): 13,
        ("no-tables", "UNLISTED"): 12,
    }


def test_sound_blocks_are_never_read_row_by_row(engine: Engine) -> None:
    chance = random.Random(SEED + 1)
    sound = healthy("sound", chance)
    hurt = healthy("hurt", chance)
    victim = hurt.entries.pop(20)
    gone = healthy("gone", chance)
    gone.entries = [one for one in gone.entries if one.topic != "u"]
    gone.topics.discard("u")  # the topic was deleted; the log still has its messages
    rows = TableRows()
    stores: list[MadeStore] = [sound, hurt, gone]
    for store in stores:
        store_rows(rows, store, chance)
    blocks = judged_blocks(rows.tables(engine), Limits(now_ms=NOW_MS)).where(
        F.col("verdict") == READ
    )
    read = [(row["store"], row["topic"], row["block"]) for row in blocks.collect()]
    assert read == [("hurt", victim.topic, victim.queue_offset // 8)]


def test_what_retention_removes_while_both_sides_are_read_is_no_damage(engine: Engine) -> None:
    """A running broker deletes the log's first segments, and the queue files that list only their
    records, between the readings of the one and of the other."""
    chance = random.Random(SEED + 2)
    made = {name: healthy(name, chance) for name in ("log-later", "queues-later", "with-damage")}
    begins = {name: store.records[60].position for name, store in made.items()}

    def left(name: str, records: list[Record]) -> list[Record]:
        return [one for one in records if one.position >= begins[name]]

    made["log-later"].records = left("log-later", made["log-later"].records)
    made["queues-later"].entries = left("queues-later", made["queues-later"].entries)
    hurt = made["with-damage"]
    hurt.records = left("with-damage", hurt.records)
    lost = hurt.records.pop(30)
    rows = TableRows()
    for store in made.values():
        store_rows(rows, store, chance)
    places = list(begins.items())
    tables = replace(
        with_rows(rows.tables(engine), engine, list(made.values())),
        log_begins=lambda: engine.frame("store string, log_begin long", places),
    )
    found = [
        (row["store"], row["class"], row["first_offset"], row["messages"])
        for row in compare(tables, Limits(now_ms=NOW_MS)).collect()
    ]
    assert found == [("with-damage", "LOST", lost.queue_offset, 1)]
