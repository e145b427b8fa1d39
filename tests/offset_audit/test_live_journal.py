"""Journals of live brokers: one that broke off never counts as whole, odd entries end nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.sent_back import Copied, Resend, SentBack, out_of_turn_document
from aerobee.offset_audit.frames.spark_frame import SparkFrame
from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.sources.live import journal
from aerobee.offset_audit.sources.live.asking import BrokerAddress
from aerobee.offset_audit.sources.live.journal import (
    UNREAD,
    LiveJournalReader,
    OneJournal,
    whole_journals,
)
from aerobee.offset_audit.sources.live.options import parse_options
from aerobee.offset_audit.sources.store import journal_entries
from aerobee.offset_audit.sources.store.journal_entries import JournalRecord, entries_of
from aerobee.offset_audit.tables import JOURNAL
from aerobee.runtime import errors
from aerobee.store.format.delayed_records import Delay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORIGIN = "c", "broker-a", 0
COMMIT: dict[str, Any] = {
    "group": "g",
    "topic": "t",
    "queueId": 3,
    "offset": 7,
    "leaseEpoch": 5,
    "timestamp": 9,
    "clientId": "one",
    "kind": "commit",
}
ODD_VALUES: list[Any] = [None, True, -1.5, 10**30, [1], {"a": 1}, "\ud800", ""]


def record(*entries: Any) -> JournalRecord:
    return JournalRecord(ORIGIN, 12, json.dumps(entries).encode())


def read_broken(
    monkeypatch: pytest.MonkeyPatch, error: errors.AerobeeError, *, records: int, skip: str = "true"
) -> list[dict[str, Any]]:
    """What is read of a journal that gives so many records, and then this error."""

    async def pull(*_: object) -> AsyncIterator[list[JournalRecord]]:
        for _number in range(records):
            yield [record(COMMIT)]
        raise error

    monkeypatch.setattr(journal, "pull_records", pull)
    monkeypatch.setattr(journal_entries, "BATCH_ROWS", 1)
    options = parse_options({"brokers": "localhost:1", "skipUnreachable": skip})
    batches = LiveJournalReader(options).read(OneJournal(BrokerAddress("localhost:1", "")))
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "error", [errors.Unreachable("gone"), errors.ReplicaBehind("behind"), errors.Busy("busy")]
)
def test_a_journal_that_breaks_off_says_so_as_the_one_it_is(
    monkeypatch: pytest.MonkeyPatch, error: errors.AerobeeError
) -> None:
    *given, last = read_broken(monkeypatch, error, records=2)
    assert [row["kind"] for row in given] == ["commit", "commit"]
    assert (last["cluster"], last["broker_name"], last["broker_id"]) == ORIGIN
    assert last["kind"] == UNREAD
    assert str(error) in last["client_id"]


def test_a_broker_that_refuses_its_journal_does_not_end_the_audit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (row,) = read_broken(monkeypatch, errors.StoreFailed("damaged"), records=0)
    assert row["kind"] == UNREAD
    assert not read_broken(monkeypatch, errors.Unreachable("gone"), records=0)


def test_without_leave_to_skip_a_broken_journal_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(errors.ShuttingDown):
        read_broken(monkeypatch, errors.ShuttingDown("bye"), records=1, skip="false")


@pytest.mark.parametrize("name", COMMIT)
@pytest.mark.parametrize("value", ODD_VALUES, ids=repr)
def test_whatever_stands_in_an_entry_the_others_are_read(name: str, value: Any) -> None:
    rows = list(entries_of(record({**COMMIT, name: value}, COMMIT)))
    assert rows[-1][4:9] == (1, "g", "t", 3, 7)
    types = [field.type for field in to_arrow_schema(schema(JOURNAL), timezone="UTC")]
    for column, kind in zip(zip(*rows, strict=True), types, strict=True):
        assert len(pa.array(column, kind)) == len(rows)


@pytest.mark.slow
def test_nothing_is_concluded_from_a_journal_that_broke_off(spark: SparkSession) -> None:
    commit = (12, 0, "g", "t", 3, 7, 5, 9, "one", "commit", None)
    unread = (*[None] * 8, "10.0.0.1:9000: it is behind", UNREAD, None)
    rows = [
        ("c", "broker-a", 0, *commit),
        ("c", "broker-a", 0, *unread),
        ("c", "broker-b", 0, *commit),
        (None, None, None, *unread),
    ]
    kept, notes = whole_journals(SparkFrame(spark.createDataFrame(rows, schema(JOURNAL))))
    assert [row["broker_name"] for row in kept.collect()] == ["broker-b"]
    assert len(notes) == 2
    assert "10.0.0.1:9000: it is behind" in notes[0]


def test_deletions_are_read_with_what_they_name_and_odd_ones_are_left_out() -> None:
    said = {"kind": "remove", "timestamp": 9, "reason": "deleted"}
    rows = list(
        entries_of(
            record(
                {**said, "group": "g"},
                {**said, "topic": "t"},
                {**said, "group": "g", "topic": "t", "queueId": 3},
                said,
                {**said, "group": "g", "queueId": 3},
                *({**said, "group": odd} for odd in ODD_VALUES if odd != ""),
            )
        )
    )
    assert [row[5:8] for row in rows] == [("g", None, None), (None, "t", None), ("g", "t", 3)]
    assert {row[-2] for row in rows} == {"remove"}


def test_the_end_of_a_topic_is_the_removal_of_all_its_offsets() -> None:
    """Else its groups would seem to have lost them."""
    end = {"kind": "topicEnd", "topic": "t", "deletedAt": 8, "leaseEpoch": 7, "timestamp": 9}
    (row,) = entries_of(record(end, {**end, "kind": "topicEndKnown"}))
    assert row[5:8] == (None, "t", None)
    assert row[-2] == "remove"


def test_what_was_sent_back_has_the_number_of_its_copy_unless_an_image_says_it_again() -> None:
    entry = SentBack(GroupQueue("g", "t", 3), 7, 40, Delay(level=3), 9, "one")
    said = out_of_turn_document(entry)
    again = out_of_turn_document(replace(entry, is_repeated=True))
    copied = out_of_turn_document(Copied(41, 10))
    letter = GroupQueue("CID_RMQ_SYS_DEAD_LETTERS", "%DLQ%g", 0)
    resent = out_of_turn_document(SentBack(letter, 2, 42, Resend("t", 3, 1), 11))
    back = out_of_turn_document(SentBack(letter, 3, 43, Resend("%RETRY%g", 0, 1), 12))
    rows = list(entries_of(record(said, again, copied, {**copied, "through": "x"}, resent, back)))
    assert [row[4:] for row in rows] == [
        (0, "g", "t", 3, 7, None, 9, "one", "sentBack", 40),
        (2, None, None, None, None, None, 10, None, "copied", 41),
        (4, *letter, 2, None, 11, None, "resent", 42),
        (5, *letter, 3, None, 12, None, "returned", 43),
    ]
