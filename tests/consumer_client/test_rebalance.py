"""Strategies: one owner per queue, Apache's examples, stability."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client_core import MessageQueue
from aerobee.consumer_client import (
    Averagely,
    AveragelyByCircle,
    ByConfiguration,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    RebalanceStrategy,
    Sticky,
)
from aerobee.consumer_client.strategies import queue_text, ring_hash
from aerobee.runtime import errors

ROOMS = ("east", "west", "north")

queues_of_rooms = st.builds(
    lambda counts: sorted(
        MessageQueue("t", f"{room}@broker", queue_id)
        for room, count in zip(ROOMS, counts, strict=True)
        for queue_id in range(count)
    ),
    st.tuples(*[st.integers(0, 14)] * 3),
)
members_of_rooms = st.sets(
    st.builds(lambda room, number: f"{room}@c{number}", st.sampled_from(ROOMS), st.integers(0, 9)),
    min_size=1,
    max_size=12,
).map(sorted)

ALL: list[RebalanceStrategy] = [
    Averagely(),
    AveragelyByCircle(),
    ConsistentHash(),
    ConsistentHash(virtual_nodes=1),
    MachineRoom(frozenset(ROOMS)),
    MachineRoomNearby(Averagely()),
    MachineRoomNearby(Sticky()),
    Sticky(),
]
EVEN: list[RebalanceStrategy] = [
    Averagely(),
    AveragelyByCircle(),
    MachineRoom(frozenset(ROOMS)),
    Sticky(),
]


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("TopicTest", "broker-a", queue_id) for queue_id in range(count)]


def shares(
    strategy: RebalanceStrategy, all_queues: list[MessageQueue], members: list[str]
) -> dict[str, list[MessageQueue]]:
    return {member: strategy.allocate(all_queues, members, member) for member in members}


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
@given(all_queues=queues_of_rooms, members=members_of_rooms)
def test_every_queue_has_exactly_one_owner(
    strategy: RebalanceStrategy, all_queues: list[MessageQueue], members: list[str]
) -> None:
    owned = [queue for share in shares(strategy, all_queues, members).values() for queue in share]
    assert sorted(owned) == all_queues


@pytest.mark.parametrize("strategy", EVEN, ids=lambda strategy: strategy.name)
@given(all_queues=queues_of_rooms, members=members_of_rooms)
def test_even_strategies_differ_by_at_most_one_queue(
    strategy: RebalanceStrategy, all_queues: list[MessageQueue], members: list[str]
) -> None:
    sizes = [len(share) for share in shares(strategy, all_queues, members).values()]
    assert max(sizes) - min(sizes) <= 1


@given(all_queues=queues_of_rooms, members=members_of_rooms, data=st.data())
def test_configured_lists_that_fit_together_give_every_queue_one_owner(
    all_queues: list[MessageQueue], members: list[str], data: st.DataObject
) -> None:
    owner = {queue: data.draw(st.sampled_from(members)) for queue in all_queues}
    owned = [
        queue
        for me in members
        for queue in ByConfiguration(
            frozenset(queue for queue in all_queues if owner[queue] == me)
        ).allocate(all_queues, members, me)
    ]
    assert sorted(owned) == all_queues


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
def test_who_is_not_a_member_owns_nothing(strategy: RebalanceStrategy) -> None:
    assert strategy.allocate(queues(8), ["east@a", "west@b"], "stranger") == []
    assert strategy.allocate(queues(8), [], "stranger") == []


def test_averagely_gives_apaches_example() -> None:
    members = ["c1", "c2", "c3", "c4"]
    ids = [
        [queue.queue_id for queue in share]
        for share in shares(Averagely(), queues(10), members).values()
    ]
    assert ids == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


def apaches_average(count: int, members: int, index: int) -> list[int]:
    """The rule as the specification words it."""
    rest = count % members
    size = 1 if count <= members else count // members + (1 if rest > 0 and index < rest else 0)
    start = index * size if rest > 0 and index < rest else index * size + rest
    return list(range(start, start + max(0, min(size, count - start))))


@given(count=st.integers(0, 60), members=st.integers(1, 20))
def test_averagely_equals_apaches_rule(count: int, members: int) -> None:
    ids = [f"c{number:02}" for number in range(members)]
    for index, me in enumerate(ids):
        mine = [queue.queue_id for queue in Averagely().allocate(queues(count), ids, me)]
        assert mine == apaches_average(count, members, index)


def test_consistent_hash_gives_apaches_example() -> None:
    assert ring_hash(queue_text(queues(1)[0])) == 1987926524
    members = ["c1", "c2", "c3"]
    expected = ["c1", "c2", "c3", "c3", "c1", "c1", "c2", "c1"]
    owner = {
        queue.queue_id: me
        for me, share in shares(ConsistentHash(), queues(8), members).items()
        for queue in share
    }
    assert [owner[queue_id] for queue_id in range(8)] == expected


@given(members=st.sets(st.integers(0, 99), min_size=2, max_size=10), data=st.data())
def test_consistent_hash_moves_only_the_queues_of_a_member_that_leaves(
    members: set[int], data: st.DataObject
) -> None:
    before = sorted(f"c{number}" for number in members)
    gone = data.draw(st.sampled_from(before))
    after = [member for member in before if member != gone]
    kept = shares(ConsistentHash(), queues(40), after)
    for me, share in shares(ConsistentHash(), queues(40), before).items():
        assert me == gone or set(share) <= set(kept[me])


def test_sticky_moves_far_fewer_queues_than_averagely() -> None:
    def moved(strategy: RebalanceStrategy) -> int:
        total = 0
        for count in range(2, 12):
            before = sorted(f"c{number}" for number in range(count))
            after = before[1:]
            old = shares(strategy, queues(120), before)
            new = shares(strategy, queues(120), after)
            total += sum(len(set(old[me]) - set(new[me])) for me in after)
        return total

    assert moved(Sticky()) * 2 < moved(Averagely())


def test_machine_room_leaves_other_rooms_alone() -> None:
    all_queues = sorted(MessageQueue("t", f"{room}@b", n) for room in ROOMS for n in range(3))
    mine = MachineRoom(frozenset({"east"})).allocate(all_queues, ["m"], "m")
    assert {queue.broker_name for queue in mine} == {"east@b"}


def test_nearby_prefers_the_own_room_and_shares_rooms_without_members() -> None:
    all_queues = sorted(MessageQueue("t", f"{room}@b", n) for room in ROOMS for n in range(2))
    owned = shares(MachineRoomNearby(Averagely()), all_queues, ["east@1", "west@1"])
    assert {q.broker_name for q in owned["east@1"]} == {"east@b", "north@b"}
    assert {q.broker_name for q in owned["west@1"]} == {"west@b", "north@b"}


def test_a_ring_without_nodes_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument):
        ConsistentHash(virtual_nodes=0)
