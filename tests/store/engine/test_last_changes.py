"""Who changed an offset last: kept small, written to the snapshot, never guessed."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.engine.tables.consumer_offset_table import (
    JOURNAL_MEMBER,
    ConsumerOffsetTable,
)
from aerobee.store.engine.tables.last_changes import (
    QUEUE_IDS_END,
    TIME_END_MS,
    LastChange,
    LastChanges,
)
from tests.support.property_runs import examples

NOW_MS = 1_732_212_000_000
COMMIT = LastChange(NOW_MS, "10.0.0.7@4711")
RESET = LastChange(NOW_MS + 1, is_reset=True)


def test_the_newest_change_of_a_queue_is_told() -> None:
    changes = LastChanges()
    changes.note("t", "g", 3, COMMIT)
    assert changes.get("t", "g", 3) == COMMIT
    assert changes.get("t", "g", 2) is None
    assert changes.get("t", "other", 3) is None
    changes.note("t", "g", 3, RESET)
    assert changes.of_queues("t", "g") == {3: RESET}
    changes.forget("t", "g", 3)
    assert changes.of_queues("t", "g") == {}


def test_a_clients_name_is_kept_only_while_an_offset_is_its() -> None:
    changes = LastChanges()
    for number in range(1_000):
        changes.note("t", "g", number % 4, LastChange(NOW_MS, f"client-{number}"))
        assert changes.client_count <= 5
    changes.remove("t", "g")
    assert changes.client_count == 0
    assert len(changes) == 0


def test_what_cannot_be_packed_is_not_known() -> None:
    changes = LastChanges()
    changes.note("t", "g", QUEUE_IDS_END, COMMIT)
    changes.note("t", "g", 0, LastChange(TIME_END_MS, "c"))
    changes.note("t", "g", 1, LastChange(0, "c"))
    assert changes.of_queues("t", "g") == {}
    assert changes.client_count == 0


def test_a_queue_takes_few_bytes() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        changes = LastChanges()
        for group in range(50):
            for queue_id in range(64):
                changes.note("t", f"g{group}", queue_id, LastChange(NOW_MS, f"c{group}"))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / len(changes) < 16


_CHANGES = st.builds(
    LastChange,
    st.integers(1, TIME_END_MS - 1),
    st.sampled_from(["", "a", "b@1", "c\u00e9"]),
    st.booleans(),
    st.booleans(),
)
_STEPS = st.lists(
    st.tuples(st.sampled_from("gh"), st.integers(0, 5), st.none() | _CHANGES), max_size=40
)


@settings(max_examples=examples(60), deadline=None)
@given(_STEPS)
def test_a_snapshot_tells_the_next_start_the_same(
    steps: list[tuple[str, int, LastChange | None]],
) -> None:
    table = ConsumerOffsetTable()
    model: dict[tuple[str, int], LastChange] = {}
    for group, queue_id, change in steps:
        table.put(group, "t", queue_id, 5, 0)
        table.note_change(group, "t", queue_id, change)
        if change is None:
            model.pop((group, queue_id), None)
        else:
            # A reset is nobody's under a lease.
            has_lease = change.has_lease or change.is_reset
            model[group, queue_id] = change._replace(has_lease=has_lease)
    for known in (table, ConsumerOffsetTable.load(table.snapshot_bytes(NOW_MS))):
        found = {
            (group, queue_id): change
            for group in "gh"
            for queue_id, change in known.last_changes(group, "t").items()
        }
        assert found == model


def test_a_snapshot_without_the_member_knows_nothing_and_gets_none() -> None:
    table = ConsumerOffsetTable()
    table.put("g", "t", 0, 5, 0)
    document = json.loads(table.snapshot_bytes(NOW_MS))
    assert "changes" not in document[JOURNAL_MEMBER]
    assert ConsumerOffsetTable.load(json.dumps(document).encode()).last_changes("g", "t") == {}


def test_an_offset_that_comes_without_its_change_forgets_the_last_one() -> None:
    table = ConsumerOffsetTable()
    table.put("g", "t", 0, 5, 0)
    table.note_change("g", "t", 0, COMMIT)
    table.commit("g", "t", 0, 7)
    assert table.last_changes("g", "t") == {}
    table.note_change("g", "t", 0, COMMIT)
    table.remove_all(None, "t")
    assert table.last_changes("g", "t") == {}


def test_what_a_damaged_member_says_is_not_believed() -> None:
    table = ConsumerOffsetTable()
    table.put("g", "t", 0, 5, 0)
    table.note_change("g", "t", 0, COMMIT)
    document: dict[str, Any] = json.loads(table.snapshot_bytes(NOW_MS))
    for value in (7, [1], ["x", 0, 0], [NOW_MS, 99, 7], {"0": 1}):
        document[JOURNAL_MEMBER]["changes"] = {"t@g": {"0": value, "9": [NOW_MS, 0, 0]}}
        loaded = ConsumerOffsetTable.load(json.dumps(document).encode())
        assert loaded.last_changes("g", "t") == {}
        assert loaded.query("g", "t", 0) == 5
    document[JOURNAL_MEMBER]["changes"] = {"t@g": {"0": [NOW_MS, 99, 0]}}
    loaded = ConsumerOffsetTable.load(json.dumps(document).encode())
    assert loaded.last_changes("g", "t") == {0: LastChange(NOW_MS)}
