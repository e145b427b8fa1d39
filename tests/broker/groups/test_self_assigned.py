"""Members that divide their queues among themselves: who is there, and what is locked."""

from __future__ import annotations

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.self_assigned import (
    LOCK_S,
    MEMBERS_MAX,
    SESSION_S,
    SelfAssigned,
    SelfMember,
)
from aerobee.runtime.errors import Busy

KEY = GroupQueue("g", "t", 0)


def member(
    client_id: str, connection: str = "", *topics: str, broadcasting: bool = False
) -> SelfMember[str]:
    wants = dict.fromkeys(topics or ("t",), "*")
    return SelfMember(client_id, connection or client_id, broadcasting, wants)


def test_others_divide_again_when_a_member_comes_changes_or_goes() -> None:
    groups: SelfAssigned[str] = SelfAssigned()
    assert groups.heard("g", member("a"), 0.0)
    assert not groups.heard("g", member("a"), 30.0)
    assert groups.heard("g", member("a", "", "t", "u"), 60.0)
    assert groups.heard("g", member("b"), 60.0)
    assert not groups.left("g", "b", "of another")
    assert groups.left("g", "b", "b")
    assert not groups.left("g", "b", "b")


def test_members_go_with_their_connection_or_after_their_silence() -> None:
    groups: SelfAssigned[str] = SelfAssigned()
    groups.heard("g", member("a", "one"), 0.0)
    groups.heard("h", member("a", "one"), 0.0)
    groups.heard("g", member("b", "two"), 50.0)
    assert groups.disconnected("one") == {"g", "h"}
    assert groups.disconnected("one") == set()
    assert groups.expire(SESSION_S) == set()
    assert groups.expire(50.0 + SESSION_S) == {"g"}
    assert not groups.has(KEY)


def test_a_client_that_connects_again_does_not_go_with_its_former_connection() -> None:
    groups: SelfAssigned[str] = SelfAssigned()
    assert groups.heard("g", member("a", "one"), 0.0)
    assert groups.lock(KEY, "a", 0.0)
    assert not groups.heard("g", member("a", "two"), 1.0)
    assert groups.client_ids("g") == ["a"]
    assert groups.disconnected("one") == set()
    assert groups.of_connection("g", "two") is not None
    assert groups.of_connection("g", "one") is None
    assert groups.locked_by(KEY, 1.0) == "a"
    assert groups.disconnected("two") == {"g"}
    assert groups.locked_by(KEY, 1.0) == ""
    assert repr(groups) == "SelfAssigned(groups=0, members=0)"


def test_members_with_one_client_id_stay_apart_by_their_connections() -> None:
    groups: SelfAssigned[str] = SelfAssigned()
    groups.heard("g", member("a", "one", "t"), 0.0)
    groups.heard("g", member("a", "two", "t", "u"), 1.0)
    groups.heard("g", member("a", "one", "t"), 2.0)
    one, two = groups.of_connection("g", "one"), groups.of_connection("g", "two")
    assert one is not None
    assert two is not None
    assert one.wants.keys() == {"t"}
    assert two.wants.keys() == {"t", "u"}
    assert groups.member("g", "a") is one
    assert groups.expire(1.0 + SESSION_S) == set()
    assert groups.of_connection("g", "two") is None
    assert groups.expire(2.0 + SESSION_S) == {"g"}


def test_a_connection_that_gives_another_client_id_is_another_member() -> None:
    groups: SelfAssigned[str] = SelfAssigned()
    groups.heard("g", member("a", "one"), 0.0)
    assert groups.heard("g", member("b", "one"), 1.0)
    assert groups.client_ids("g") == ["b"]
    assert groups.disconnected("one") == {"g"}
    assert groups.disconnected("one") == set()


def test_a_queue_is_the_groups_own_while_a_member_shares_its_topic() -> None:
    groups: SelfAssigned[str] = SelfAssigned()
    groups.heard("g", member("a", "", "t", broadcasting=True), 0.0)
    assert not groups.has(KEY)
    groups.heard("g", member("b", "", "t"), 0.0)
    assert groups.has(KEY)
    assert groups.has(GroupQueue("g", "%RETRY%g", 0))
    assert not groups.has(GroupQueue("g", "another", 0))
    assert list(groups.wishes("g", "t")) == ["*", "*"]
    assert list(groups.wishes("g", "another")) == []


def test_a_lock_ends_by_itself_or_with_its_holder() -> None:
    groups: SelfAssigned[str] = SelfAssigned()
    groups.heard("g", member("a"), 0.0)
    assert groups.lock(KEY, "a", 0.0)
    assert not groups.lock(KEY, "b", LOCK_S - 1)
    assert groups.lock(KEY, "a", LOCK_S - 1)
    assert not groups.lock(KEY, "b", LOCK_S + 1)
    assert groups.lock(KEY, "b", 2 * LOCK_S)
    assert groups.locked_by(KEY, 2 * LOCK_S) == "b"
    groups.unlock(KEY, "a")
    assert not groups.lock(KEY, "a", 2 * LOCK_S)
    groups.unlock(KEY, "b")
    assert groups.lock(KEY, "a", 2 * LOCK_S)
    groups.disconnected("a")
    assert groups.lock(KEY, "b", 2 * LOCK_S)


def test_a_group_has_a_bounded_number_of_members() -> None:
    groups: SelfAssigned[str] = SelfAssigned()
    for number in range(MEMBERS_MAX):
        groups.heard("g", member(str(number)), 0.0)
    with pytest.raises(Busy):
        groups.heard("g", member("one more"), 0.0)
    assert not groups.heard("g", member("0"), 1.0)
