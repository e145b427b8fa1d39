"""The model of quotas: never more than is allowed, everyone has a turn, what holds for whom."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.access.account import HOUR_S, Account
from aerobee.access.book import AccessBook
from aerobee.access.guard import CallGuard
from aerobee.access.meter import PATIENCE_S, Meter
from aerobee.access.quota import (
    BUILT_IN,
    DEFAULT,
    GROUP,
    GROUPS_CREATED,
    QUOTA_FIELDS,
    UNLIMITED,
    USER,
    Quota,
    Subject,
    Traffic,
    decode_quota,
    encode_quota,
)
from aerobee.access.quotas import ACCOUNTS_MAX, REFUSED, Quotas
from aerobee.access.records import UnreadableRecord, encode_user
from aerobee.access.table import Record, Records
from aerobee.access.users import User
from aerobee.broker.edge.own.needs import broker_needs
from aerobee.runtime.errors import InvalidArgument, QuotaExceeded
from aerobee.runtime.token_bucket import TokenBucket
from aerobee.v1 import broker_pb2
from tests.access.test_gate import SEND, SEND_STREAM, SIGNED, Call, Scene, microseconds, shop

COSTS = st.lists(
    st.tuples(st.floats(0, 3), st.floats(0.1, 40)), min_size=1, max_size=60
)  # pause before, cost


@given(COSTS, st.floats(0.5, 50), st.integers(1, 50))
def test_never_more_is_used_than_burst_and_rate_allow(
    costs: list[tuple[float, float]], per_s: float, burst: int
) -> None:
    """In no span of time; and each is served in the order in which it came."""
    bucket = TokenBucket(per_s=per_s, burst=burst, now_s=0.0)
    now_s, used = 0.0, []
    for pause_s, cost in costs:
        now_s += pause_s
        cost = min(cost, burst)
        used.append((now_s + bucket.spend(now_s, cost), cost))
    times = [at_s for at_s, _ in used]
    assert times == sorted(times), "who came later was served first"
    for first, (from_s, _) in enumerate(used):
        total = 0.0
        for at_s, cost in used[first:]:
            total += cost
            assert total <= burst + per_s * (at_s - from_s) + 1e-3


@given(COSTS, st.floats(0.5, 50), st.integers(1, 50))
def test_everyone_has_his_turn_as_soon_as_what_came_before_is_paid(
    costs: list[tuple[float, float]], per_s: float, burst: int
) -> None:
    """Also what costs more than the burst; and nobody waits while the bucket is full."""
    bucket = TokenBucket(per_s=per_s, burst=burst, now_s=0.0)
    now_s = before = 0.0
    for pause_s, cost in costs:
        now_s += pause_s
        wait_s = bucket.spend(now_s, cost)
        before += cost
        assert wait_s <= before / per_s + 1e-6
    assert bucket.wait_s(now_s + before / per_s + burst / per_s, burst) == 0.0


@given(COSTS, st.floats(0.5, 50), st.integers(1, 50))
def test_who_comes_when_told_is_let_in(
    costs: list[tuple[float, float]], per_s: float, burst: int
) -> None:
    bucket = TokenBucket(per_s=per_s, burst=burst, now_s=0.0)
    now_s = 0.0
    for pause_s, cost in costs:
        now_s += pause_s
        now_s += bucket.wait_s(now_s, cost)
        assert bucket.spend(now_s, cost) == 0.0


# ------------------------------------------------------------------------- what holds for whom


class Time:
    def __init__(self) -> None:
        self.s = 100.0

    def now(self) -> float:
        return self.s


class Node:
    """The quotas of one node, and a way to set them."""

    def __init__(self) -> None:
        self.time = Time()
        self.book = AccessBook()
        self.quotas = Quotas(self.book, self.time.now)
        self.users: list[User] = []
        self.set: dict[Subject, Quota] = {}

    def know(self, *users: User, **_: Any) -> None:
        self.users = list(users)
        self._tell()

    def sets(self, kind: str, name: str, **limits: int) -> None:
        self.set[Subject(kind, name)] = Quota(**limits)
        self._tell()

    def _tell(self) -> None:
        self.book.hear(
            Records.of(
                [Record(user.name, encode_user(user)) for user in self.users],
                [],
                [Record(str(who), encode_quota(who, quota)) for who, quota in self.set.items()],
            )
        )

    def meter(self, user: str = "shop") -> Meter:
        return Meter(self.quotas, self.quotas.of_user(user))


def test_what_a_user_does_not_say_the_default_says_and_else_what_is_built_in() -> None:
    node = Node()
    account = node.quotas.of_user("shop")
    assert account.quota == BUILT_IN
    node.sets(DEFAULT, "", send_bytes=100, connections=7)
    node.sets(USER, "shop", send_bytes=50, subscriptions=0)
    assert account.quota == Quota(
        send_bytes=50,
        connections=7,
        subscriptions=0,
        topics_created=BUILT_IN.topics_created,
        groups_created=BUILT_IN.groups_created,
    )
    assert node.quotas.of_user("other").quota.send_bytes == 100
    assert node.quotas.of_address("10.0.0.1").quota.send_bytes == 100
    del node.set[Subject(USER, "shop")]
    node.sets(DEFAULT, "", connections=8)
    assert account.quota == Quota(connections=8).or_else(BUILT_IN)
    assert not account.rates, "no rate is limited any more"


def test_defaults_are_not_for_super_users() -> None:
    node = Node()
    node.know(User("root", is_super=True))
    node.sets(DEFAULT, "", send_requests=1)
    assert node.quotas.of_user("root").quota == UNLIMITED
    node.sets(USER, "root", send_requests=5)
    assert node.quotas.of_user("root").quota == Quota(send_requests=5)
    node.know(User("root"))
    assert node.quotas.of_user("root").quota.connections == BUILT_IN.connections


def test_another_quota_of_one_user_gives_nothing_back_to_the_others() -> None:
    node = Node()
    node.sets(USER, "greedy", send_requests=2)
    greedy = node.meter("greedy")
    for _ in range(2):
        assert greedy.spend(Traffic.SEND, 1) == 0
    node.sets(USER, "shop", send_requests=3)
    with pytest.raises(QuotaExceeded) as refused:
        greedy.spend(Traffic.SEND, 1, patience_s=0)
    assert refused.value.retry_after_ms == 500
    assert "user greedy may have 2 send requests a second (quota send_requests)" in str(
        refused.value
    )
    assert node.quotas.met["send_requests", REFUSED] == 1
    assert node.meter("shop").spend(Traffic.SEND, 1, patience_s=0) == 0, "another user paid for it"
    node.time.s += 0.5
    assert greedy.spend(Traffic.SEND, 1, patience_s=0) == 0


def test_requests_and_bytes_of_user_and_group_all_count_and_a_refusal_takes_nothing() -> None:
    node = Node()
    node.sets(USER, "shop", read_bytes=1_000, read_requests=100)
    node.sets(GROUP, "readers", read_bytes=300)
    meter = node.meter()
    assert meter.spend(Traffic.READ, 300, "readers") == 0
    with pytest.raises(QuotaExceeded, match=r"group readers may have 300 read bytes"):
        meter.spend(Traffic.READ, 300, "readers", patience_s=PATIENCE_S)
    assert meter.spend(Traffic.READ, 700, "others") == 0, "the refused one took from the user"
    assert meter.spend(Traffic.READ, 100, "others") == pytest.approx(0.1)
    assert meter.spend(Traffic.COLD_READ, 10**9, "readers") == 0, "it has no limit"
    assert meter.room(Traffic.COLD_READ, "readers") > 10**9
    meter.follows = True
    assert meter.room(Traffic.READ, "readers") == 300


def test_what_was_taken_too_much_is_given_back() -> None:
    node = Node()
    node.sets(USER, "shop", cold_read_bytes=1_000)
    meter = node.meter()
    assert meter.spend(Traffic.COLD_READ, 1_000) == 0
    meter.spend(Traffic.COLD_READ, 200 - 1_000, requests=0)
    assert meter.spend(Traffic.COLD_READ, 800) == 0
    assert meter.spend(Traffic.COLD_READ, 1) > 0


def test_so_many_are_created_in_an_hour() -> None:
    node = Node()
    node.sets(USER, "shop", groups_created=2)
    meter = node.meter()
    meter.create(GROUPS_CREATED)
    meter.create(GROUPS_CREATED)
    with pytest.raises(QuotaExceeded, match="2 groups created an hour") as refused:
        meter.create(GROUPS_CREATED)
    assert refused.value.retry_after_ms == HOUR_S * 1_000 / 2
    node.time.s += HOUR_S / 2
    meter.create(GROUPS_CREATED)


def test_connections_count_until_they_end() -> None:
    node = Node()
    node.sets(USER, "shop", connections=2)
    account = node.quotas.of_user("shop")
    for peer in ("a:1", "a:2", "a:1"):
        node.quotas.connect(account, peer)
    with pytest.raises(QuotaExceeded, match="2 connections"):
        node.quotas.connect(account, "a:3")
    node.quotas.connect(node.quotas.of_user("other"), "a:3")
    node.quotas.disconnected("a:1")
    node.quotas.disconnected("a:1")
    node.quotas.connect(account, "a:3")
    node.quotas.disconnected("a:3")
    assert node.quotas.of_user("other").is_idle


def test_subscriptions_of_all_streams_count_until_these_end() -> None:
    node = Node()
    node.sets(USER, "shop", subscriptions=5)
    first, second = node.meter(), node.meter()
    first.began()
    first.hold_subscriptions(3)
    second.hold_subscriptions(2)
    with pytest.raises(QuotaExceeded, match="5 subscriptions"):
        second.hold_subscriptions(3)
    first.hold_subscriptions(2)
    second.hold_subscriptions(3)
    first.ended()
    second.hold_subscriptions(5)


def test_a_thousand_addresses_leave_nothing_behind() -> None:
    node = Node()
    lasting = node.quotas.of_address("10.9.9.9")
    node.quotas.connect(lasting, "10.9.9.9:1")
    for number in range(2 * ACCOUNTS_MAX):
        account = node.quotas.of_address(f"address {number}")
        node.quotas.connect(account, f"peer {number}")
        node.quotas.disconnected(f"peer {number}")
    told = re.fullmatch(r"Quotas\(accounts=(\d+), connections=1\)", repr(node.quotas))
    assert told is not None, node.quotas
    assert int(told[1]) <= ACCOUNTS_MAX
    assert lasting.connections == {"10.9.9.9:1"}
    assert node.quotas.of_address("10.9.9.9") is lasting


async def test_a_pause_ends_when_quotas_change() -> None:
    node = Node()
    pause = asyncio.create_task(node.quotas.pauses.pause(3_600))
    await asyncio.sleep(0)
    node.sets(USER, "shop", send_bytes=1)
    await asyncio.wait_for(pause, 30)


# ---------------------------------------------------------------------------------- records

LIMITS = st.dictionaries(st.sampled_from(QUOTA_FIELDS), st.integers(0, 2**53))


@given(LIMITS)
def test_records_say_what_they_were_made_of(limits: dict[str, int]) -> None:
    quota = UNLIMITED.changed(limits)
    for subject in (Subject(USER, "shop"), Subject(DEFAULT)):
        assert decode_quota(encode_quota(subject, quota)) == (subject, quota)


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "user", "name": "shop", "send_bytes": -1},
        {"kind": "user", "name": "shop", "send_bytes": True},
        {"kind": "user", "name": "shop", "send_bytes": "many"},
        {"kind": "group", "name": "readers", "send_bytes": 1},
        {"kind": "topic", "name": "orders"},
        {"kind": "default", "name": "shop"},
        ["user"],
    ],
)
def test_records_that_make_no_sense_leave_the_default(record: object) -> None:
    value = json.dumps(record).encode()
    with pytest.raises(UnreadableRecord):
        decode_quota(value)
    node = Node()
    node.book.hear(Records.of((), (), [Record("user/shop", value)]))
    assert node.quotas.of_user("shop").quota == BUILT_IN


def test_an_older_node_reads_what_a_newer_one_wrote() -> None:
    value = json.dumps({"kind": "user", "name": "a", "send_bytes": 5, "of_later": 1}).encode()
    assert decode_quota(value) == (Subject(USER, "a"), Quota(send_bytes=5))


def test_limits_that_cannot_be_are_refused() -> None:
    for changes in ({"send_bytes": -1}, {"send_bytes": 2**60}, {"sent": 1}):
        with pytest.raises(InvalidArgument):
            UNLIMITED.changed(changes)
    assert Quota(send_bytes=1, connections=2).changed({"send_bytes": None}) == Quota(connections=2)


def test_without_quotas_nodes_say_what_they_always_said() -> None:
    """An older node beside a newer one must not take the same users for others."""
    users = [Record("shop", b"{}")]
    assert Records.of(users, ()).version == Records.of(users, (), ()).version
    assert Records.of(users, ()).version != Records.of(users, (), [Record("default", b"")]).version
    assert Records.of((), (), ()).version == ""


# ------------------------------------------------------------------------------------ costs


def test_what_quotas_cost() -> None:
    """Less than 20 us for a request and 2 us for a frame with quotas; next to nothing without.

    The limits are three times that: others may have the processor.
    """
    scene = Scene()
    scene.know(shop(is_super=True))
    quotas = Quotas(scene.book, Time().now)
    guard, open_guard = (
        CallGuard(
            scene.table,
            scene.callers,
            scene.recorder,
            is_checked=is_checked,
            quotas=quotas,
            counts_connections=True,
        )
        for is_checked in (True, False)
    )
    request = broker_pb2.SendRequest(topic="orders", body=bytes(1_000))

    def cost_of(
        call: Call, path: str, by: CallGuard, account: Account
    ) -> tuple[float, float, Callable[[], object]]:
        method = by.method(path)
        assert method is not None

        def one() -> None:
            visit = method.admit(call)
            visit.enter()
            meter = Meter(quotas, account)
            if meter.limits(""):
                meter.spend(Traffic.SEND, request.ByteSize(), patience_s=0)
            visit.leave()

        stream = Meter(quotas, account)

        def each() -> None:
            if stream.limits(""):
                stream.spend(Traffic.SEND, 64_000)

        return microseconds(one), microseconds(each), one

    assert SEND in broker_needs("hive")
    user, address = quotas.of_user("shop"), quotas.of_address("10.0.0.7")
    without = cost_of(Call(), SEND, open_guard, address)[:2]
    many = Quota(**dict.fromkeys(QUOTA_FIELDS, 2**50))
    user.become(many, 100.0)
    address.become(many, 100.0)
    limited = cost_of(SIGNED, SEND, guard, user)[:2]
    by_address = cost_of(Call(), SEND_STREAM, open_guard, address)[:2]
    print({"none set": without, "by user": limited, "by address": by_address})
    assert without[0] < 15
    assert without[1] < 1.5
    assert limited[0] < 60
    assert by_address[0] < 60
    assert limited[1] < 6
