"""Who is elected, for whatever a group may have come to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.domain.broker_condition import BrokerCondition
from aerobee.nameserver.election import (
    alter_in_sync_set,
    elect,
    with_replica,
    without_replica,
)
from aerobee.nameserver.log_reach import LogPositions
from aerobee.nameserver.log_reach import confirmed_end as confirmed_end_of
from aerobee.nameserver.replica_sets import is_hasty
from aerobee.nameserver.stored import (
    BrokerKey,
    BrokerRecord,
    DurableLog,
    DurableLogs,
    InSyncReplica,
    ReplicaSet,
)
from aerobee.runtime.errors import InvalidArgument, StaleEpoch

IDS = (0, 1, 2)


def record(broker_id: int, **fields: object) -> BrokerRecord:
    base = BrokerRecord(BrokerKey("g", broker_id), f"run{broker_id}", "address", revision=7)
    return replace(base, **fields)  # type: ignore[arg-type]


@st.composite
def groups(draw: st.DrawFn) -> ReplicaSet:
    ids = draw(st.sets(st.sampled_from(IDS), min_size=1))
    in_sync = draw(st.sets(st.sampled_from(sorted(ids))))
    return ReplicaSet(
        "g",
        epoch=draw(st.integers(0, 5)),
        master_id=draw(st.sampled_from((-1, *sorted(ids)))),
        master_instance=draw(st.sampled_from(("run0", "run1", "gone"))),
        in_sync=tuple(sorted(InSyncReplica(one, draw(st.sampled_from("xy"))) for one in in_sync)),
        replicas=tuple(sorted(ids)),
        revision=3,
    )


@st.composite
def live_replicas(draw: st.DrawFn) -> dict[int, BrokerRecord]:
    return {
        broker_id: record(
            broker_id,
            incarnation=draw(st.sampled_from("xyz")),
            log_epoch=draw(st.integers(0, 6)),
            log_end=draw(st.integers(0, 100)),
            resigned_epoch=draw(st.integers(0, 5)),
            successor_id=draw(st.sampled_from((-1, *IDS))),
            condition=draw(st.sampled_from(BrokerCondition)),
        )
        for broker_id in draw(st.sets(st.sampled_from(IDS)))
    }


def is_intact(name: InSyncReplica, live: dict[int, BrokerRecord]) -> bool:
    return name.broker_id in live and live[name.broker_id].incarnation == name.incarnation


@given(groups(), live_replicas(), st.booleans())
def test_an_election_follows_the_rules(
    group: ReplicaSet, live: dict[int, BrokerRecord], allow_unclean: bool
) -> None:
    election = elect(group, live, allow_unclean=allow_unclean)
    if election is None:
        return
    elected = election.replica_set
    assert elected.epoch > group.epoch
    assert all(elected.epoch > one.log_epoch for one in live.values())
    chosen = live[elected.master_id]
    assert elected.master_instance == chosen.instance
    assert chosen.condition is not BrokerCondition.DISK_HUNG
    own = InSyncReplica(elected.master_id, chosen.incarnation)
    assert own in elected.in_sync
    assert all(is_intact(name, live) for name in elected.in_sync)
    assert set(elected.in_sync) <= {*group.in_sync, own}
    assert election.expects[chosen.key] == chosen.revision
    was_intact = any(is_intact(name, live) for name in group.in_sync)
    if was_intact and not allow_unclean:
        assert own in group.in_sync
    if group.in_sync:
        assert election.is_unclean == (own not in group.in_sync)
    else:
        # New, or its record was lost: then others may have more than whoever is here.
        is_lost = chosen.log_epoch > 0 and len(group.replicas) > 1
        assert election.is_unclean == is_lost
    assert (elected.epoch in elected.unclean_epochs) == election.is_unclean


@given(groups(), live_replicas(), st.booleans())
def test_a_master_that_lives_is_replaced_only_when_it_resigned(
    group: ReplicaSet, live: dict[int, BrokerRecord], allow_unclean: bool
) -> None:
    master = live.get(group.master_id)
    if master is not None and master.instance == group.master_instance:
        election = elect(group, live, allow_unclean=allow_unclean)
        assert (election is None) or master.resigned_epoch == group.epoch


@given(groups(), live_replicas(), st.booleans())
def test_a_former_master_must_still_be_as_it_was_seen(
    group: ReplicaSet, live: dict[int, BrokerRecord], allow_unclean: bool
) -> None:
    election = elect(group, live, allow_unclean=allow_unclean)
    if election is not None and group.master_id >= 0:
        former = live.get(group.master_id)
        expected = 0 if former is None else former.revision
        assert election.expects[BrokerKey("g", group.master_id)] == expected


LOST_BOTH = ReplicaSet(
    "g",
    epoch=4,
    master_id=0,
    master_instance="gone",
    in_sync=(InSyncReplica(0, "old"), InSyncReplica(1, "old")),
    replicas=(0, 1, 2),
    revision=3,
)


def test_when_all_lost_power_whoever_kept_the_most_is_elected_and_the_loss_recorded() -> None:
    live = {
        0: record(0, incarnation="new", log_epoch=4, log_end=80),
        1: record(1, incarnation="new", log_epoch=4, log_end=90),
        2: record(2, incarnation="x", log_epoch=4, log_end=95),
    }
    election = elect(LOST_BOTH, live, allow_unclean=False)
    assert election is not None
    assert election.replica_set.master_id == 2  # not in sync, but it has all that the others kept
    assert election.replica_set.unclean_epochs == (5,)
    assert elect(LOST_BOTH, {0: live[0], 2: live[2]}, allow_unclean=False) is None


def test_an_emptied_log_is_not_elected_while_another_replica_may_have_messages() -> None:
    group = replace(LOST_BOTH, in_sync=(InSyncReplica(0, "old"),), replicas=(0, 1))
    emptied = {0: record(0, incarnation="new")}
    assert elect(group, emptied, allow_unclean=False) is None
    assert elect(group, emptied, allow_unclean=True) is None
    both = {**emptied, 1: record(1, incarnation="x", log_epoch=3, log_end=50)}
    election = elect(group, both, allow_unclean=False)
    assert election is not None
    assert (election.replica_set.master_id, election.is_unclean) == (1, True)


def test_when_all_come_back_empty_it_is_waited_for_what_their_heartbeats_say() -> None:
    """A registration may be older than its log; and an empty master would lose everything."""
    group = replace(LOST_BOTH, in_sync=(InSyncReplica(0, "old"),), replicas=(0, 1))
    stale = {0: record(0, incarnation="new"), 1: record(1, incarnation="x")}
    due = elect(group, stale, allow_unclean=False)
    assert due is not None
    assert (due.is_unclean, due.is_short) == (True, True)
    heard = {**stale, 1: record(1, incarnation="x", log_epoch=3, log_end=50)}
    due = elect(group, heard, allow_unclean=False)
    assert due is not None
    assert (due.replica_set.master_id, due.is_unclean, due.is_short) == (1, True, False)


def test_an_old_copy_is_not_elected_while_another_replica_may_have_messages() -> None:
    """All died at once, and its registration was the last to end: so it is alone in the set."""
    group = ReplicaSet("g", epoch=2, master_id=1, in_sync=(InSyncReplica(1, "old"),), replicas=IDS)
    copy = record(1, incarnation="new", log_epoch=1, log_end=50, is_incomplete=True)
    for allowed in (copy, replace(copy, is_incomplete=False)):
        election = elect(group, {1: allowed}, allow_unclean=False)
        assert (election is None) == allowed.is_incomplete
    others = {one: record(one, incarnation="x", log_epoch=1, log_end=90) for one in (0, 2)}
    assert elect(group, {1: copy, 0: others[0]}, allow_unclean=False) is None
    election = elect(group, {1: copy, **others}, allow_unclean=False)
    assert election is not None
    assert (election.replica_set.master_id, election.is_unclean) == (0, True)


def test_the_only_replica_is_elected_with_an_empty_log_too() -> None:
    group = replace(LOST_BOTH, in_sync=(InSyncReplica(0, "old"),), replicas=(0,))
    election = elect(group, {0: record(0, incarnation="new")}, allow_unclean=False)
    assert election is not None
    assert election.replica_set.unclean_epochs == (5,)


def test_a_replica_whose_disk_hangs_is_waited_for_and_not_elected() -> None:
    hung = record(0, incarnation="old", log_end=90, condition=BrokerCondition.DISK_HUNG)
    well = record(1, incarnation="old", log_end=80)
    election = elect(LOST_BOTH, {0: hung, 1: well}, allow_unclean=False)
    assert election is not None
    assert election.replica_set.master_id == 1
    # It leaves the set at once: writes do not wait for it.
    assert election.replica_set.in_sync == (InSyncReplica(1, "old"),)
    behind = record(2, incarnation="x", log_epoch=4, log_end=50)
    assert elect(LOST_BOTH, {0: hung, 2: behind}, allow_unclean=False) is None
    election = elect(LOST_BOTH, {0: hung, 2: behind}, allow_unclean=True)
    assert election is not None
    assert (election.replica_set.master_id, election.is_unclean) == (2, True)
    back = replace(hung, condition=BrokerCondition.SLOW)
    election = elect(LOST_BOTH, {0: back, 2: behind}, allow_unclean=False)
    assert election is not None
    assert (election.replica_set.master_id, election.is_unclean) == (0, False)


def test_an_empty_replica_is_not_elected_while_the_one_with_messages_hangs() -> None:
    """Unclean elections take no replica without a log, and a disk that hangs has one."""
    hung = record(0, incarnation="x", log_epoch=1, log_end=90)
    hung = replace(hung, condition=BrokerCondition.DISK_HUNG)
    live = {0: hung, **{each: record(each, incarnation="y") for each in (1, 2)}}
    assert elect(LOST_BOTH, live, allow_unclean=True) is None
    live[0] = replace(hung, log_epoch=0, log_end=0)
    election = elect(LOST_BOTH, live, allow_unclean=True)
    assert election is not None
    assert election.replica_set.master_id in (1, 2)


def test_after_a_power_failure_the_furthest_log_is_waited_for_while_its_disk_hangs() -> None:
    hung = record(0, incarnation="new", log_epoch=4, log_end=90)
    hung = replace(hung, condition=BrokerCondition.DISK_HUNG)
    live = {0: hung, 1: record(1, incarnation="new", log_epoch=4, log_end=80)}
    assert elect(LOST_BOTH, live, allow_unclean=False) is None
    live[0] = replace(hung, condition=BrokerCondition.WELL)
    election = elect(LOST_BOTH, live, allow_unclean=False)
    assert election is not None
    assert election.replica_set.master_id == 0


def test_an_unclean_election_takes_nobody_who_never_followed_a_master() -> None:
    newcomer = {1: record(1, incarnation="x")}
    assert elect(LOST_BOTH, newcomer, allow_unclean=True) is None
    follower = {1: record(1, incarnation="x", log_epoch=1)}
    election = elect(LOST_BOTH, follower, allow_unclean=True)
    assert election is not None
    assert election.is_unclean


MASTER_GONE = ReplicaSet(
    "g",
    epoch=4,
    master_id=0,
    master_instance="gone",
    in_sync=(InSyncReplica(0, "x"), InSyncReplica(1, "x"), InSyncReplica(2, "x")),
    replicas=IDS,
    revision=3,
)


@pytest.mark.parametrize(
    ("ends", "confirmed_end", "allow_unclean", "elected", "is_unclean"),
    [
        pytest.param({1: 100, 2: 90}, 90, False, 1, False, id="both have it: the furthest"),
        pytest.param({1: 100, 2: 90}, 100, False, 1, False, id="one has it"),
        pytest.param({1: 100, 2: 90}, 101, False, None, False, id="none has it: the master may"),
        pytest.param({1: 100, 2: 90}, 101, True, 1, True, id="none has it, and that is allowed"),
        pytest.param({0: 80, 1: 100, 2: 90}, 101, False, 1, True, id="all are here, none has it"),
        pytest.param({0: 101, 1: 100, 2: 90}, 101, False, 0, False, id="the master is back"),
        pytest.param({1: 0, 2: 0}, 0, False, 1, False, id="nothing is known to be confirmed"),
    ],
)
def test_nobody_is_elected_cleanly_whose_log_ends_before_what_was_confirmed(
    ends: dict[int, int],
    confirmed_end: int,
    allow_unclean: bool,
    elected: int | None,
    is_unclean: bool,
) -> None:
    live = {
        one: record(one, incarnation="x", log_epoch=4, log_end=end) for one, end in ends.items()
    }
    due = elect(MASTER_GONE, live, allow_unclean=allow_unclean, confirmed_end=confirmed_end)
    assert (None if due is None else due.replica_set.master_id) == elected
    if due is not None:
        assert due.is_unclean == is_unclean
        assert due.replica_set.unclean_epochs == ((5,) if is_unclean else ())
        assert due.is_short == is_unclean
        assert is_hasty(MASTER_GONE, due) == is_unclean


def test_a_resigning_master_does_not_choose_a_successor_that_lacks_what_was_confirmed() -> None:
    group = replace(MASTER_GONE, master_instance="run0")
    live = {
        0: record(0, incarnation="x", log_epoch=4, log_end=100, resigned_epoch=4, successor_id=1),
        1: record(1, incarnation="x", log_epoch=4, log_end=90),
        2: record(2, incarnation="x", log_epoch=4, log_end=95),
    }
    due = elect(group, live, allow_unclean=False, confirmed_end=90)
    assert due is not None
    assert (due.replica_set.master_id, due.is_short) == (1, False)
    due = elect(group, live, allow_unclean=False, confirmed_end=91)
    assert due is not None
    assert (due.replica_set.master_id, due.is_unclean) == (0, False)
    assert is_hasty(group, due), "its next heartbeat may say that it has everything"


# ---------------------------------------------------------------------------------- what is known


def test_what_was_confirmed_counts_under_later_records_until_an_unclean_election() -> None:
    positions = LogPositions()
    first = ReplicaSet("g", epoch=4, master_id=0, master_instance="m4")
    positions.confirmed(first, 100)
    positions.confirmed(first, 90)
    assert positions.confirmed_end(first) == 100, "it never falls"
    clean = replace(first, epoch=5, master_instance="m5")
    assert positions.confirmed_end(clean) == 100
    unclean = replace(first, epoch=6, master_instance="m6", unclean_epochs=(3, 6))
    assert positions.confirmed_end(unclean) == 0
    after = replace(unclean, epoch=7, master_instance="m7")
    assert positions.confirmed_end(after) == 0
    positions.confirmed(after, 70)
    assert positions.confirmed_end(after) == 70
    positions.confirmed(first, 100)
    assert positions.confirmed_end(after) == 70, "an outdated record says nothing"
    assert positions.confirmed_end(replace(after, epoch=2)) == 0, "etcd was restored"
    assert positions.confirmed_end(ReplicaSet("other", epoch=7)) == 0


def test_what_was_noted_of_replicas_in_sync_is_known_to_be_confirmed() -> None:
    notes = {
        0: DurableLogs((DurableLog("x", 50, "i0"), DurableLog("older", 900, "i0"))),
        1: DurableLogs((DurableLog("x", 70, "i1"),)),
        7: DurableLogs((DurableLog("x", 800, "i7"),)),
    }
    assert confirmed_end_of(MASTER_GONE, notes) == 70
    assert confirmed_end_of(replace(MASTER_GONE, in_sync=()), notes) == 0


def test_a_log_has_what_its_process_is_noted_to_have_said_to_another_nameserver() -> None:
    positions = LogPositions()
    positions.read_notes(MASTER_GONE, {0: DurableLogs((DurableLog("x", 50, "run0"),))})
    live = {
        0: record(0, incarnation="x", log_epoch=4, log_end=40),
        1: record(1, incarnation="x", log_epoch=4, log_end=40),
    }
    assert {one: known.log_end for one, known in positions.newest(live).items()} == {0: 50, 1: 40}
    for other in (replace(live[0], incarnation="y"), replace(live[0], instance="run9")):
        assert positions.newest({0: other})[0].log_end == 40
    due = elect(
        MASTER_GONE,
        positions.newest({0: live[0]}),
        allow_unclean=True,
        confirmed_end=positions.confirmed_end(MASTER_GONE),
    )
    assert due is not None
    assert (due.replica_set.master_id, due.is_unclean) == (0, False)


def test_when_the_record_was_lost_the_furthest_log_is_elected_and_the_loss_recorded() -> None:
    group = ReplicaSet("g", replicas=(0, 1))
    live = {0: record(0, log_epoch=4, log_end=90), 1: record(1, log_epoch=4, log_end=10)}
    due = elect(group, live, allow_unclean=False)
    assert due is not None
    assert (due.replica_set.master_id, due.replica_set.epoch, due.replica_set.unclean_epochs) == (
        0,
        5,
        (5,),
    )


def test_when_the_record_was_lost_others_may_register_before_one_is_elected() -> None:
    laggard = {1: record(1, log_epoch=4, log_end=10)}
    before = ReplicaSet("g", replicas=(1,))
    due = elect(before, laggard, allow_unclean=False)
    assert due is not None
    assert is_hasty(before, due)
    assert not due.is_unclean, "as far as anybody knows the group has no other replica"


def test_a_new_group_has_its_master_with_the_first_registration() -> None:
    before = ReplicaSet("g", replicas=(1,))
    due = elect(before, {1: record(1)}, allow_unclean=False)
    assert due is not None
    assert not is_hasty(before, due)


@given(groups(), st.integers(0, 5), st.sets(st.sampled_from((*IDS, 9))))
def test_only_the_master_of_the_epoch_alters_the_in_sync_set(
    group: ReplicaSet, epoch: int, ids: set[int]
) -> None:
    master = (group.master_id, group.master_instance)
    wanted = tuple(InSyncReplica(broker_id, "x") for broker_id in sorted(ids))
    if epoch != group.epoch:
        with pytest.raises(StaleEpoch):
            alter_in_sync_set(group, master=master, epoch=epoch, in_sync=wanted)
    elif group.master_id not in ids or not ids <= set(group.replicas):
        with pytest.raises(InvalidArgument):
            alter_in_sync_set(group, master=master, epoch=epoch, in_sync=wanted)
    else:
        altered = alter_in_sync_set(group, master=master, epoch=epoch, in_sync=wanted)
        assert altered == replace(group, in_sync=wanted)


@given(groups(), live_replicas(), st.sampled_from((*IDS, 9)))
def test_a_replica_that_may_have_all_messages_is_not_removed(
    group: ReplicaSet, live: dict[int, BrokerRecord], broker_id: int
) -> None:
    try:
        removed = without_replica(group, broker_id, live)
    except InvalidArgument:
        return
    assert broker_id not in live
    assert broker_id != group.master_id
    assert all(name.broker_id != broker_id for name in group.in_sync)
    assert with_replica(removed, broker_id) == group
