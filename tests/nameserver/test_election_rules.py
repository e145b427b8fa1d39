"""Who is elected, for whatever a group may have come to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.nameserver.election import (
    alter_in_sync_set,
    elect,
    with_replica,
    without_replica,
)
from aerobee.nameserver.groups import is_hasty
from aerobee.nameserver.stored import BrokerGroup, BrokerKey, BrokerRecord, InSyncReplica
from aerobee.runtime.errors import InvalidArgument, StaleEpoch

IDS = (0, 1, 2)


def record(broker_id: int, **fields: object) -> BrokerRecord:
    base = BrokerRecord(BrokerKey("g", broker_id), f"run{broker_id}", "address", revision=7)
    return replace(base, **fields)  # type: ignore[arg-type]


@st.composite
def groups(draw: st.DrawFn) -> BrokerGroup:
    ids = draw(st.sets(st.sampled_from(IDS), min_size=1))
    in_sync = draw(st.sets(st.sampled_from(sorted(ids))))
    return BrokerGroup(
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
        )
        for broker_id in draw(st.sets(st.sampled_from(IDS)))
    }


def is_intact(name: InSyncReplica, live: dict[int, BrokerRecord]) -> bool:
    return name.broker_id in live and live[name.broker_id].incarnation == name.incarnation


@given(groups(), live_replicas(), st.booleans())
def test_an_election_follows_the_rules(
    group: BrokerGroup, live: dict[int, BrokerRecord], allow_unclean: bool
) -> None:
    election = elect(group, live, allow_unclean=allow_unclean)
    if election is None:
        return
    elected = election.group
    assert elected.epoch > group.epoch
    assert all(elected.epoch > one.log_epoch for one in live.values())
    chosen = live[elected.master_id]
    assert elected.master_instance == chosen.instance
    own = InSyncReplica(elected.master_id, chosen.incarnation)
    assert own in elected.in_sync
    assert all(is_intact(name, live) for name in elected.in_sync)
    assert set(elected.in_sync) <= {*group.in_sync, own}
    assert election.expects[chosen.key] == chosen.revision
    was_intact = any(is_intact(name, live) for name in group.in_sync)
    if was_intact:
        assert own in group.in_sync
    if group.in_sync:
        assert election.is_unclean == (not was_intact)
    else:
        # New, or its record was lost: then others may have more than whoever is here.
        is_lost = chosen.log_epoch > 0 and len(group.replicas) > 1
        assert election.is_unclean == is_lost
    assert (elected.epoch in elected.unclean_epochs) == election.is_unclean


@given(groups(), live_replicas(), st.booleans())
def test_a_master_that_lives_is_replaced_only_when_it_resigned(
    group: BrokerGroup, live: dict[int, BrokerRecord], allow_unclean: bool
) -> None:
    master = live.get(group.master_id)
    if master is not None and master.instance == group.master_instance:
        election = elect(group, live, allow_unclean=allow_unclean)
        assert (election is None) or master.resigned_epoch == group.epoch


@given(groups(), live_replicas(), st.booleans())
def test_a_former_master_must_still_be_as_it_was_seen(
    group: BrokerGroup, live: dict[int, BrokerRecord], allow_unclean: bool
) -> None:
    election = elect(group, live, allow_unclean=allow_unclean)
    if election is not None and group.master_id >= 0:
        former = live.get(group.master_id)
        expected = 0 if former is None else former.revision
        assert election.expects[BrokerKey("g", group.master_id)] == expected


LOST_BOTH = BrokerGroup(
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
    assert election.group.master_id == 2  # not in sync, but it has all that the others kept
    assert election.group.unclean_epochs == (5,)
    assert elect(LOST_BOTH, {0: live[0], 2: live[2]}, allow_unclean=False) is None


def test_an_emptied_log_is_not_elected_while_another_replica_may_have_messages() -> None:
    group = replace(LOST_BOTH, in_sync=(InSyncReplica(0, "old"),), replicas=(0, 1))
    emptied = {0: record(0, incarnation="new")}
    assert elect(group, emptied, allow_unclean=False) is None
    assert elect(group, emptied, allow_unclean=True) is None
    both = {**emptied, 1: record(1, incarnation="x", log_epoch=3, log_end=50)}
    election = elect(group, both, allow_unclean=False)
    assert election is not None
    assert (election.group.master_id, election.is_unclean) == (1, True)


def test_an_old_copy_is_not_elected_while_another_replica_may_have_messages() -> None:
    """All died at once, and its registration was the last to end: so it is alone in the set."""
    group = BrokerGroup("g", epoch=2, master_id=1, in_sync=(InSyncReplica(1, "old"),), replicas=IDS)
    copy = record(1, incarnation="new", log_epoch=1, log_end=50, is_incomplete=True)
    for allowed in (copy, replace(copy, is_incomplete=False)):
        election = elect(group, {1: allowed}, allow_unclean=False)
        assert (election is None) == allowed.is_incomplete
    others = {one: record(one, incarnation="x", log_epoch=1, log_end=90) for one in (0, 2)}
    assert elect(group, {1: copy, 0: others[0]}, allow_unclean=False) is None
    election = elect(group, {1: copy, **others}, allow_unclean=False)
    assert election is not None
    assert (election.group.master_id, election.is_unclean) == (0, True)


def test_the_only_replica_is_elected_with_an_empty_log_too() -> None:
    group = replace(LOST_BOTH, in_sync=(InSyncReplica(0, "old"),), replicas=(0,))
    election = elect(group, {0: record(0, incarnation="new")}, allow_unclean=False)
    assert election is not None
    assert election.group.unclean_epochs == (5,)


def test_an_unclean_election_takes_nobody_who_never_followed_a_master() -> None:
    newcomer = {1: record(1, incarnation="x")}
    assert elect(LOST_BOTH, newcomer, allow_unclean=True) is None
    follower = {1: record(1, incarnation="x", log_epoch=1)}
    election = elect(LOST_BOTH, follower, allow_unclean=True)
    assert election is not None
    assert election.is_unclean


def test_when_the_record_was_lost_the_furthest_log_is_elected_and_the_loss_recorded() -> None:
    group = BrokerGroup("g", replicas=(0, 1))
    live = {0: record(0, log_epoch=4, log_end=90), 1: record(1, log_epoch=4, log_end=10)}
    due = elect(group, live, allow_unclean=False)
    assert due is not None
    assert (due.group.master_id, due.group.epoch, due.group.unclean_epochs) == (0, 5, (5,))


def test_when_the_record_was_lost_others_may_register_before_one_is_elected() -> None:
    laggard = {1: record(1, log_epoch=4, log_end=10)}
    before = BrokerGroup("g", replicas=(1,))
    due = elect(before, laggard, allow_unclean=False)
    assert due is not None
    assert is_hasty(before, due)
    assert not due.is_unclean, "as far as anybody knows the group has no other replica"


def test_a_new_group_has_its_master_with_the_first_registration() -> None:
    before = BrokerGroup("g", replicas=(1,))
    due = elect(before, {1: record(1)}, allow_unclean=False)
    assert due is not None
    assert not is_hasty(before, due)


@given(groups(), st.integers(0, 5), st.sets(st.sampled_from((*IDS, 9))))
def test_only_the_master_of_the_epoch_alters_the_in_sync_set(
    group: BrokerGroup, epoch: int, ids: set[int]
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
    group: BrokerGroup, live: dict[int, BrokerRecord], broker_id: int
) -> None:
    try:
        removed = without_replica(group, broker_id, live)
    except InvalidArgument:
        return
    assert broker_id not in live
    assert broker_id != group.master_id
    assert all(name.broker_id != broker_id for name in group.in_sync)
    assert with_replica(removed, broker_id) == group
