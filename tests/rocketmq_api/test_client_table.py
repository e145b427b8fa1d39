"""Which official clients a node knows, and how long a message stays with its client."""

from __future__ import annotations

import pytest

from aerobee.rocketmq_api.clients.settings import Registration
from aerobee.rocketmq_api.clients.table import (
    BROKERS_MAX,
    SUBSCRIBED_LENGTH_MAX,
    Client,
    ClientTable,
)
from aerobee.runtime.clock import ManualClock
from apache.rocketmq.v2 import definition_pb2 as v2

MINUTE_MS = 60_000


class Scene:
    """A table that has been there for an hour."""

    def __init__(self, clients_max: int = 100) -> None:
        self.clock = ManualClock()
        self.gone: list[str] = []
        self.table = ClientTable(self.clock, clients_max=clients_max, on_gone=self.gone.append)
        self.clock.advance_ms(3_600_000)

    def heard(self, client_id: str = "c", user: str = "") -> Client:
        return self.table.heard(client_id, "JAVA", "5.0.8", "ipv4:10.0.0.7:5", user)

    def join(self, client_id: str = "c", group: str = "g") -> Client:
        client = self.heard(client_id)
        self.table.registered(client, Registration(v2.PUSH_CONSUMER, group=group))
        return client

    def held_ms(self, taken_ms: int, client_id: str = "c") -> int:
        """From now on."""
        return self.table.held_until_ms(client_id, taken_ms) - self.clock.now_ms()

    def members(self, group: str = "g") -> list[str]:
        return [client.client_id for client in self.table.members(group)]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_settings_make_a_client_a_member_and_the_last_ones_count(scene: Scene) -> None:
    scene.join("b")
    client = scene.join("a")
    assert scene.members() == ["a", "b"]
    subscriptions = {"t": ("paid",), "u": None}
    scene.table.registered(
        client, Registration(v2.SIMPLE_CONSUMER, group="h", subscriptions=subscriptions)
    )
    assert (scene.members(), scene.members("h")) == (["b"], ["a"])
    assert scene.table.groups() == ["g", "h"]
    assert (client.kind, client.subscriptions) == (v2.SIMPLE_CONSUMER, subscriptions)
    assert (client.language, client.version) == ("JAVA", "5.0.8")


def test_a_heartbeat_is_enough_but_counts_less_than_settings(scene: Scene) -> None:
    client = scene.heard()
    scene.table.takes_part(client, v2.PUSH_CONSUMER, "g")
    assert (client.kind, scene.members()) == (v2.PUSH_CONSUMER, ["c"])
    scene.table.registered(client, Registration(v2.SIMPLE_CONSUMER, group="h"))
    scene.table.takes_part(client, v2.PUSH_CONSUMER, "g")
    assert (client.kind, scene.members("h")) == (v2.SIMPLE_CONSUMER, ["c"])


def test_a_kind_that_nobody_knows_is_none(scene: Scene) -> None:
    client = scene.heard("a")
    scene.table.takes_part(client, -1, "g")  # type: ignore[arg-type]
    (member,) = scene.table.members("g")
    assert (member.kind, member.title) == (v2.CLIENT_TYPE_UNSPECIFIED, "client, JAVA 5.0.8")


def test_a_client_that_is_silent_is_forgotten_after_two_minutes(scene: Scene) -> None:
    scene.join("a")
    scene.clock.advance_ms(100_000)
    scene.join("b")
    scene.clock.advance_ms(21_000)
    assert scene.members() == ["b"]
    assert scene.table.get("a") is None
    scene.clock.advance_ms(100_000)
    assert (scene.table.groups(), len(scene.table)) == ([], 0)


def test_any_call_keeps_a_client(scene: Scene) -> None:
    scene.join()
    for _ in range(10):
        scene.clock.advance_ms(30_000)
        scene.heard()
    assert scene.members() == ["c"]


def test_a_table_that_is_full_forgets_the_one_not_heard_of_for_longest() -> None:
    scene = Scene(clients_max=3)
    for client_id in ("a", "b", "c"):
        scene.join(client_id)
        scene.clock.advance_ms(2_000)
    scene.heard("a")
    scene.join("d")
    assert scene.members() == ["a", "c", "d"]


def test_one_id_of_two_users_is_two_clients_and_neither_moves_the_others_messages(
    scene: Scene,
) -> None:
    taken_ms = scene.clock.now_ms()
    mine, other = scene.heard("c", "shop"), scene.heard("c", "nobody")
    for client in (mine, other):
        scene.table.registered(client, Registration(v2.PUSH_CONSUMER, group="g"))
    assert scene.members() == ["c", "c"]
    scene.table.left(other)
    assert scene.gone == ["nobody/c"]
    assert scene.held_ms(taken_ms, "shop/c") == MINUTE_MS
    scene.clock.advance_ms(MINUTE_MS)
    scene.heard("c", "nobody")
    assert scene.held_ms(taken_ms, "shop/c") == 0


def test_a_user_that_invents_clients_only_pushes_out_its_own() -> None:
    scene = Scene(clients_max=10)
    taken_ms = scene.clock.now_ms()
    for name in ("a", "b", "c"):
        scene.heard(name, "shop")
    for number in range(1_000):
        scene.heard(f"junk-{number}", "nobody")
    assert len(scene.table) == 10
    assert all(scene.table.get(f"shop/{name}") for name in ("a", "b", "c"))
    assert scene.held_ms(taken_ms, "shop/a") == MINUTE_MS


def test_a_message_stays_while_its_client_is_heard_of(scene: Scene) -> None:
    scene.join()
    taken_ms = scene.clock.now_ms()
    assert scene.held_ms(taken_ms) == MINUTE_MS
    scene.clock.advance_ms(50_000)
    assert scene.held_ms(taken_ms) == 10_000
    scene.heard()
    assert scene.held_ms(taken_ms) == MINUTE_MS
    scene.clock.advance_ms(70_000)
    assert scene.held_ms(taken_ms) == -10_000


def test_a_client_that_says_goodbye_leaves_its_messages_also_if_late_answers_come(
    scene: Scene,
) -> None:
    client = scene.join()
    taken_ms = scene.clock.now_ms()
    scene.clock.advance_ms(5_000)
    scene.table.left(client)
    assert scene.gone == ["c"]
    scene.heard()
    assert scene.held_ms(taken_ms) == 1_000
    assert scene.members() == []
    scene.join()
    assert scene.held_ms(taken_ms) == MINUTE_MS


def test_a_client_whose_stream_breaks_is_gone_until_it_calls(scene: Scene) -> None:
    scene.join()
    taken_ms = scene.clock.now_ms()
    stream = object()
    scene.table.stream_began("c", stream)
    scene.clock.advance_ms(5_000)
    scene.table.stream_ended("c", stream, by_client=True)
    assert (scene.gone, scene.held_ms(taken_ms), scene.members()) == (["c"], 1_000, [])
    scene.heard()
    assert (scene.held_ms(taken_ms), scene.members()) == (MINUTE_MS, ["c"])


def test_a_stream_that_another_has_replaced_or_this_node_has_ended_says_nothing(
    scene: Scene,
) -> None:
    scene.join()
    first, second = object(), object()
    scene.table.stream_began("c", first)
    scene.table.stream_began("c", second)
    scene.table.stream_ended("c", first, by_client=True)
    scene.table.stream_ended("c", second, by_client=False)
    assert (scene.gone, scene.members()) == ([], ["c"])


def test_a_node_that_begins_waits_for_clients_that_it_has_not_heard_of(scene: Scene) -> None:
    taken_ms = scene.clock.now_ms()
    assert scene.held_ms(taken_ms) == 1_000
    scene.clock.advance_ms(30_000)
    scene.table.begin()
    assert scene.held_ms(taken_ms) == MINUTE_MS
    scene.clock.advance_ms(61_000)
    assert scene.held_ms(taken_ms) < 0


def test_a_time_of_day_that_is_set_takes_nobodys_messages(scene: Scene) -> None:
    scene.join()
    taken_ms = scene.clock.now_ms()
    scene.clock.step_wall_ms(600_000)
    assert scene.held_ms(taken_ms) == MINUTE_MS
    assert scene.members() == ["c"]


def test_brokers_that_have_calls_of_a_client_hear_of_it_every_ten_seconds(scene: Scene) -> None:
    client = scene.heard()
    scene.table.passed_on(client, "broker-a", "t")
    assert scene.table.to_tell(client) == []
    scene.clock.advance_ms(9_000)
    scene.table.passed_on(client, "broker-b", "u")
    scene.clock.advance_ms(1_000)
    assert scene.table.to_tell(client) == [("broker-a", "t")]
    assert scene.table.to_tell(client) == []
    scene.clock.advance_ms(10_000)
    assert scene.table.to_tell(client) == [("broker-a", "t"), ("broker-b", "u")]


def test_what_is_kept_of_one_client_is_bounded(scene: Scene) -> None:
    client = scene.heard()
    for number in range(BROKERS_MAX + 10):
        scene.table.passed_on(client, f"broker-{number}", "t")
    assert len(client.passed_to) == BROKERS_MAX
    topics = {f"{number:0127}": None for number in range(1_000)}
    scene.table.registered(client, Registration(v2.PUSH_CONSUMER, group="g", subscriptions=topics))
    assert len(client.subscriptions) == SUBSCRIBED_LENGTH_MAX // 127
