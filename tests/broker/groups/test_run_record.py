"""The lease file: what a run leaves to the next."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.groups.current_run import CurrentRun
from aerobee.broker.groups.members import VIEW_BYTES_MAX, Member, Subscription
from aerobee.broker.groups.queue_leases import COUNTER_BITS, GroupQueue, Lease
from aerobee.broker.groups.run_record import (
    FIRST_RECORD,
    RunRecord,
    known_by_backup,
    next_run,
    planned_end,
)
from aerobee.runtime.errors import Busy

NAMES = st.text("abc-_%", min_size=1, max_size=5)
MEMBERS = st.builds(
    Member,
    group=NAMES,
    client_id=st.text(min_size=1, max_size=5),
    instance=NAMES,
    subscriptions=st.tuples(st.builds(Subscription, NAMES, st.text(max_size=5))),
    broadcasting=st.just(False),
    session_timeout_s=st.integers(1, 10**6).map(lambda value: value / 1_000),
    last_heartbeat_s=st.integers(0, 10**6).map(lambda value: -value / 1_000),
)
LEASES = st.builds(
    Lease, st.builds(GroupQueue, NAMES, NAMES, st.integers(0, 99)), NAMES, st.integers(1, 2**62)
)


@given(
    st.builds(
        RunRecord,
        run_number=st.integers(0, 2**31),
        session_timeout_max_ms=st.integers(0, 10**6),
        is_clean=st.booleans(),
        members=st.lists(MEMBERS, max_size=3).map(tuple),
        leases=st.lists(LEASES, max_size=3).map(tuple),
        unsure_ms=st.integers(0, 10**6),
    )
)
def test_what_is_written_is_read_back(record: RunRecord) -> None:
    assert RunRecord.decode(record.encode()) == record


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b"null", b'{"runNumber": -1}', b'{"runNumber": "x"}', b"\xff\xfe"],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a record of queue leases"):
        RunRecord.decode(data)


@given(st.sampled_from(["runNumber", "members", "leases", "sessionTimeoutMaxMs", "cleanStop"]))
def test_a_missing_member_is_refused(name: str) -> None:
    document = json.loads(FIRST_RECORD.encode())
    del document[name]
    with pytest.raises(ValueError, match="not a record of queue leases"):
        RunRecord.decode(json.dumps(document).encode())


@given(st.data())
def test_a_flipped_bit_is_noticed_unless_it_means_nothing(data: st.DataObject) -> None:
    record = RunRecord(12, 30_000, True, "boot", (member("a"),), (lease("a"),))
    written = bytearray(record.encode())
    position = data.draw(st.integers(0, len(written) - 1))
    written[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = RunRecord.decode(bytes(written))
    except ValueError:
        return
    assert read == record, "white space became other white space"


def test_of_a_lost_record_its_backup_says_what_can_be_said() -> None:
    """The lost one may be of the run after the backup's, and may have promised more."""
    backup = RunRecord(12, 30_000, True, "boot", (member("a"),), (lease("a"),))
    known = known_by_backup(backup, 120_000)
    assert (known.run_number, known.session_timeout_max_ms, known.is_clean) == (13, 120_000, False)
    assert (known.members, known.leases) == ((), ())
    assert next_run(known).run_number == 14
    assert known_by_backup(backup, 1_000).session_timeout_max_ms == 30_000


def test_a_run_has_a_higher_number_than_those_that_an_unclean_election_lost() -> None:
    """The other replica was opened more often than epochs began, and its table has their leases."""
    common = RunRecord(run_number=1_026, session_timeout_max_ms=0, is_clean=False, epoch=1)
    lost = common
    for _ in range(5):
        lost = next_run(lost, epoch=3)
    assert next_run(common, epoch=4).run_number > lost.run_number
    assert next_run(lost, epoch=3).run_number == lost.run_number + 1


def member(client_id: str, timeout_s: float = 10.0, *, broadcasting: bool = False) -> Member:
    return Member("g", client_id, "1", (Subscription("t"),), broadcasting, timeout_s, 0.0)


def lease(client_id: str, run: int = 1) -> Lease:
    return Lease(GroupQueue("g", "t", 0), client_id, (run << COUNTER_BITS) + 1)


async def nowhere_else(_record: RunRecord) -> None:
    """No journal."""


def state_after(previous: RunRecord, written: list[RunRecord], now_s: float = 50.0) -> CurrentRun:
    async def write(record: bytes) -> None:
        await asyncio.sleep(0)
        written.append(RunRecord.decode(record))

    state = CurrentRun(write)
    state.begin(previous, next_run(previous), now_s, nowhere_else, believes_members=True)
    return state


async def test_a_new_folder_waits_for_nobody() -> None:
    state = state_after(FIRST_RECORD, [])
    assert state.leases.grace_end_s is None
    assert state.views_held_back_s == 0
    granted = state.leases.acquire(GroupQueue("g", "t", 0), "a")
    assert granted is not None
    assert granted.epoch >> COUNTER_BITS == 1


async def test_after_a_clean_stop_members_and_leases_go_on() -> None:
    previous = planned_end(
        RunRecord(1, 30_000, is_clean=False),
        [member("a", 8.0), member("b", 3.0, broadcasting=True)],
        [lease("a")],
        now_s=0.0,
    )
    assert (previous.is_clean, previous.session_timeout_max_ms) == (True, 8_000)
    state = state_after(previous, [])
    assert state.leases.holder(lease("a").key) == lease("a")
    (taken_over,) = state.members.members("g")
    assert taken_over.deadline_s == 58.0
    assert state.leases.grace_end_s is None


async def test_planned_ends_in_a_row_do_not_prolong_the_hold_of_a_dead_member() -> None:
    """It keeps what was left of its session, and as long as a live one needs to come back."""
    record = RunRecord(1, 30_000, is_clean=False)
    first = planned_end(record, [member("dead", 8.0)], [lease("dead")], now_s=4.0)
    (left,) = state_after(RunRecord.decode(first.encode()), []).members.members("g")
    assert left.deadline_s == 50.0 + 4.0
    second = planned_end(record, [left], [lease("dead")], now_s=53.5)
    state = state_after(second, [], now_s=200.0)
    (left,) = state.members.members("g")
    assert left.deadline_s == 200.0 + 3.0
    assert state.leases.holder(lease("dead").key) == lease("dead")


async def test_a_session_shorter_than_the_time_to_come_back_begins_anew() -> None:
    previous = planned_end(RunRecord(1, 2_000, is_clean=False), [member("a", 2.0)], [], now_s=1.5)
    (left,) = state_after(previous, []).members.members("g")
    assert left.deadline_s == 52.0


async def test_a_group_above_todays_bound_is_taken_over_whole_and_takes_nobody_else() -> None:
    """An older version, or another bound, may have admitted its members."""
    subscriptions = tuple(Subscription("t" * 100, "x" * 60_000) for _ in range(10))
    members = [replace(member(name), subscriptions=subscriptions) for name in ("a", "b")]
    assert sum(each.view_bytes for each in members) > VIEW_BYTES_MAX
    record = RunRecord(1, 30_000, is_clean=False)
    previous = planned_end(record, members, [lease("b")], now_s=0.0)
    state = state_after(previous, [])
    assert [each.client_id for each in state.members.members("g")] == ["a", "b"]
    assert state.leases.holder(lease("b").key) == lease("b")
    with pytest.raises(Busy, match="use fewer members"):
        state.members.join(replace(member("c"), last_heartbeat_s=50.0))
    state.members.join(replace(members[1], last_heartbeat_s=50.0))
    state.end()
    assert state.members.member_count == 0


async def test_after_a_crash_the_longest_promised_session_is_waited_out() -> None:
    state = state_after(RunRecord(4, 20_000, is_clean=False), [])
    assert state.leases.grace_end_s == 70.0
    assert state.views_held_back_s == 3.0
    assert state.leases.acquire(GroupQueue("g", "t", 0), "a") is None


async def test_a_longer_session_is_on_disk_before_it_is_granted() -> None:
    written: list[RunRecord] = []
    state = state_after(FIRST_RECORD, written)
    await asyncio.gather(*(state.promise_session(ms) for ms in (500, 9_000, 2_000, 9_000)))
    await state.promise_session(8_000)
    await state.promise_session(10_000)
    assert [record.session_timeout_max_ms for record in written] == [500, 9_000, 10_000]
    assert {(record.run_number, record.is_clean) for record in written} == {(1, False)}


async def test_a_crash_after_a_clean_restart_still_remembers_the_members_taken_over() -> None:
    record = RunRecord(1, 30_000, is_clean=False)
    previous = planned_end(record, [member("a", 8.0)], [], now_s=0.0)
    assert next_run(previous).session_timeout_max_ms == 8_000


async def test_a_planned_end_within_the_grace_leaves_the_rest_of_it_to_the_next_run() -> None:
    """Not the whole grace: planned ends in a row would prolong it. Nor none: former holders that
    this run never met may still work."""
    state = state_after(RunRecord(4, 20_000, is_clean=False), [])
    state.members.join(replace(member("a"), last_heartbeat_s=55.0))
    assert state.leases.resume("g", "a", [(lease("a").key, lease("a").epoch)])[0] == [lease("a")]
    record = state.planned_end(64.0)
    assert (record.is_clean, record.session_timeout_max_ms) == (False, 20_000)
    assert record.unsure_ms == 6_000
    after = state_after(RunRecord.decode(record.encode()), [], now_s=90.0)
    assert after.leases.grace_end_s == 96.0
    assert after.leases.holder(lease("a").key) == lease("a")
    assert after.leases.acquire(GroupQueue("g", "t", 1), "a") is None
    (left,) = after.members.members("g")
    assert left.deadline_s == 93.0
    assert next_run(record).grace_ms == 20_000, "a crash of the next run begins it anew"


async def test_an_older_version_waits_a_whole_session_after_an_end_within_the_grace() -> None:
    """It knows nothing of a grace that goes on, and must not grant at once."""
    record = state_after(RunRecord(4, 20_000, is_clean=False), []).planned_end(64.0)
    written = record.as_object()
    assert (written["cleanStop"], written["sessionTimeoutMaxMs"]) == (False, 20_000)


async def test_a_stop_while_a_former_holder_may_still_work_does_not_count_as_clean() -> None:
    """Or the next run would give its queue to another member at once."""
    state = state_after(FIRST_RECORD, [])
    await state.promise_session(9_000)
    key = GroupQueue("g", "t", 0)
    assert state.leases.acquire(key, "a") is not None
    state.leases.revoke(key, 59.0)
    record = state.planned_end(52.0)
    assert (record.is_clean, record.session_timeout_max_ms) == (False, 9_000)
    assert record.grace_ms == 7_000
    state.leases.end_blocks(59.0)
    assert state.planned_end(59.0).is_clean
