"""From which replica a queue is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.cluster_view.route import Endpoint
from aerobee.consumer_client.group_reads import choose, should_move
from aerobee.consumer_client.lease_table import QueueKey

KEY = QueueKey("orders", 0)


def replica(broker_id: int, *, is_master: bool = False) -> Endpoint:
    return Endpoint("broker-a", broker_id, f"127.0.0.1:{broker_id + 1}", is_master, epoch=3)


MASTER, FIRST, SECOND = replica(0, is_master=True), replica(1), replica(2)
ALL = (MASTER, FIRST, SECOND)


def chosen(
    replicas: tuple[Endpoint, ...] = ALL,
    *,
    suggested: int | None = None,
    may_ask_master: bool = True,
    avoided: frozenset[int] = frozenset(),
    queue_id: int = 0,
) -> int | None:
    found = choose(
        replicas,
        QueueKey("orders", queue_id),
        suggested=suggested,
        may_ask_master=may_ask_master,
        avoided=avoided,
    )
    return None if found is None else found.broker_id


def test_the_master_is_read_unless_it_sends_elsewhere() -> None:
    assert chosen() == 0
    assert chosen(suggested=2) == 2
    assert chosen(suggested=7) == 0, "who is not alive is no place to go"


def test_a_slave_will_do_while_the_master_cannot_be_asked() -> None:
    assert chosen(may_ask_master=False) == 1
    assert chosen(avoided=frozenset({0})) == 1
    assert chosen((FIRST, SECOND)) == 1
    assert chosen((FIRST, SECOND), queue_id=1) == 2, "queues spread"


def test_what_failed_is_avoided_even_if_it_was_suggested() -> None:
    assert chosen(suggested=2, avoided=frozenset({2})) == 0
    assert chosen(avoided=frozenset({0, 1, 2})) is None
    assert chosen((MASTER,), may_ask_master=False) is None


def test_a_queue_without_trouble_moves_only_for_a_reason() -> None:
    assert not should_move(ALL, 0, MASTER, suggested=None)
    assert not should_move(ALL, 0, FIRST, suggested=None), "the session broke, the pull did not"
    assert not should_move(ALL, 1, SECOND, suggested=None)
    assert not should_move((), 0, None, suggested=None), "nowhere else to go"
    assert should_move(ALL, 0, FIRST, suggested=1)
    assert should_move(ALL, 1, MASTER, suggested=None), "the master can be asked again"
    assert should_move((FIRST,), 0, FIRST, suggested=None), "its place is gone"


@given(
    masters=st.booleans(),
    ids=st.sets(st.integers(0, 4), max_size=5),
    avoided=st.frozensets(st.integers(0, 4)),
    suggested=st.none() | st.integers(0, 4),
    may_ask_master=st.booleans(),
)
def test_a_choice_is_alive_not_avoided_and_stable(
    masters: bool,
    ids: set[int],
    avoided: frozenset[int],
    suggested: int | None,
    may_ask_master: bool,
) -> None:
    replicas = tuple(replica(one, is_master=masters and one == min(ids)) for one in sorted(ids))
    found = choose(
        replicas, KEY, suggested=suggested, may_ask_master=may_ask_master, avoided=avoided
    )
    usable = [
        one
        for one in replicas
        if one.broker_id not in avoided and (may_ask_master or not one.is_master)
    ]
    assert (found is None) == (not usable)
    if found is not None:
        assert found in usable
        assert not should_move(replicas, found.broker_id, found, suggested=suggested)
