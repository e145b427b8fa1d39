"""Bodies of the offset journal, and the page that describes them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.groups.members import Member
from aerobee.broker.groups.queue_leases import GroupQueue, Lease
from aerobee.broker.groups.run_record import RunRecord
from aerobee.broker.journal.records import ImageEnd, body_of
from aerobee.broker.offsets.entries import (
    LEASE_PART_BYTES,
    Entry,
    LeaseEntry,
    LeaseParts,
    OffsetEntry,
    decode_body,
    entry_text,
    lease_entries,
)
from aerobee.broker.offsets.merge import Change, ChangeKind
from aerobee.broker.offsets.sent_back import Copied, FinishedBeyond, Resend, SentBack
from aerobee.store.engine.tables.finished_ranges import Range
from aerobee.store.format.dead_letter_fields import Death
from aerobee.store.format.delayed_records import Delay
from tests.support.journal_replica import any_text

PAGE = Path(__file__).resolve().parents[3] / "docs" / "internals" / "offset-journal.md"

WHOLE = st.integers(0, 2**63 - 1)
NAMES = st.text(min_size=1, max_size=8)
KEYS = st.builds(GroupQueue, NAMES, NAMES, st.integers(0, 2**31 - 1))
OFFSETS = st.builds(
    OffsetEntry,
    KEYS,
    st.builds(Change, st.sampled_from(ChangeKind), WHOLE, WHOLE),
    WHOLE,
    st.text(max_size=8),
)
RECORDS = st.builds(
    RunRecord,
    run_number=st.integers(0, 2**31),
    session_timeout_max_ms=st.integers(0, 10**6),
    is_clean=st.booleans(),
    boot_id=NAMES,
    leases=st.lists(st.builds(Lease, KEYS, NAMES, WHOLE), max_size=3).map(tuple),
    epoch=st.integers(0, 99),
    broker_id=st.integers(0, 9),
)
DEATHS = st.builds(
    lambda attempts, name, reason: (attempts, name, reason, "m"), WHOLE, NAMES, NAMES
)


def sent_back(
    key: GroupQueue,
    offset: int,
    number: int,
    way: Delay | Resend | tuple[int, str, str, str],
    timestamp_ms: int,
    is_repeated: bool,
) -> SentBack:
    """An entry as it is read back: a death knows group and time by its entry."""
    if not isinstance(way, Delay | Resend):
        attempts, name, reason, member = way
        return SentBack(
            key,
            offset,
            number,
            Death(key.group, attempts, timestamp_ms, name, reason, member),
            timestamp_ms,
            "c",
            is_repeated,
        )
    return SentBack(key, offset, number, way, timestamp_ms, "c", is_repeated)


WAYS = st.one_of(
    DEATHS,
    st.builds(Resend, NAMES, WHOLE, WHOLE),
    st.builds(lambda level: Delay(level=level), st.integers(1, 18)),
    st.builds(lambda deliver_ms: Delay(deliver_ms=deliver_ms), WHOLE),
)
RANGES = st.lists(st.integers(0, 999), unique=True, max_size=8).map(
    lambda bounds: tuple(
        Range(*sorted(bounds)[at : at + 2]) for at in range(0, len(bounds) // 2 * 2, 2)
    )
)
ENTRIES = st.one_of(
    OFFSETS,
    st.builds(sent_back, KEYS, WHOLE, WHOLE, WAYS, WHOLE, st.booleans()),
    st.builds(Copied, WHOLE, WHOLE),
    st.builds(FinishedBeyond, KEYS, RANGES, WHOLE),
    st.builds(LeaseEntry, RECORDS, WHOLE, st.integers(0, 5), st.integers(1, 6)),
    st.builds(ImageEnd, WHOLE, WHOLE, WHOLE),
)


@given(st.lists(ENTRIES, max_size=5))
def test_what_is_written_is_read_back(entries: list[Entry]) -> None:
    assert decode_body(body_of(any_text(entry) for entry in entries)) == entries


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1]",
        b"[{}]",
        b'[{"kind":"commit"}]',
        b"\xff",
        b"[" * 100_000,
        b'[{"group":"g","topic":"t","queueId":0,"offset":-1,"leaseEpoch":0,"timestamp":0,'
        b'"clientId":"","kind":"commit"}]',
    ],
)
def test_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="not a record of the journal"):
        decode_body(body)


def test_entries_of_a_later_kind_are_skipped() -> None:
    assert decode_body(b'[{"kind":"from the future","x":1}]') == []


@given(st.lists(st.integers(0, LEASE_PART_BYTES), max_size=20), st.integers(0, 20))
def test_a_long_record_of_leases_comes_in_parts_that_fit(lengths: list[int], members: int) -> None:
    """No part is longer than a record of the journal may be, whatever clients call themselves."""
    record = RunRecord(
        3,
        1_000,
        True,
        "boot",
        tuple(Member("g", "c" * length, "i", (), False, 1.0, 0.0) for length in lengths[:members]),
        tuple(
            Lease(GroupQueue("g", "t", number), "c" * length, number + 1)
            for number, length in enumerate(lengths)
        ),
        epoch=2,
        broker_id=1,
    )
    entries = lease_entries(record, 5)
    assert [(entry.part, entry.parts) for entry in entries] == [
        (number, len(entries)) for number in range(len(entries))
    ]
    assert max(len(entry_text(entry)) for entry in entries) < 2 * LEASE_PART_BYTES + 2_000
    parts = LeaseParts()
    assert [parts.take(entry) for entry in entries][-1] == record
    alone = LeaseParts()
    assert all(alone.take(entry) is None for entry in entries[1:])


def test_the_example_of_the_page_is_what_it_says() -> None:
    """Whoever writes a reader of the journal has this page."""
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    entries = decode_body(block.encode())
    assert entries[0] == OffsetEntry(
        GroupQueue("billing", "Orders", 3),
        Change(ChangeKind.COMMIT, 1_207, 12_884_901_890),
        1_732_212_000_123,
        "10.0.0.7@4711",
    )
    kinds = [json.loads(any_text(entry))["kind"] for entry in entries]
    assert kinds == [
        "commit",
        "reset",
        "image",
        "remove",
        "topicEnd",
        "topicEndKnown",
        "topicLivesOn",
        "imageEnd",
        "sentBack",
        "sentBack",
        "resent",
        "copied",
        "finished",
        "tried",
        "lease",
    ]
    assert [json.loads(any_text(entry)) for entry in entries] == json.loads(block)
