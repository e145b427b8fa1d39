"""What Apache's remoting clients do, unchanged, with two brokers: each promise named."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.rocketmq_api.official.scene import dead_letters
from tests.rocketmq_remoting.official.scene import (
    Scene,
    bodies,
    is_quiet,
    pushed,
    received,
)

pytestmark = pytest.mark.slow


def test_messages_arrive_as_they_were_sent(scene: Scene) -> None:
    scene.begin("plain")
    with scene.producer() as producer:
        (sent,) = scene.send(
            producer, "one", tag="a", key="k1 k2", properties={"mine": "päckchen", "other": "x"}
        )
        scene.send(producer, "two", how="async")
        scene.send(producer, "three", how="oneway")
        scene.send(producer, "x" * 20_000)  # the client compresses it
        with scene.consumer() as consumer:
            messages = {message["body"]: message for message in pushed(consumer, 4)}
            assert is_quiet(consumer)
        viewed = producer.ask("view", topic=scene.topic, id=sent["offset_id"])
    assert messages.keys() == {"one", "two", "three", "x" * 20_000}
    one = messages["one"]
    assert (one["id"], one["tag"], one["keys"], one["attempt"]) == (sent["id"], "a", "k1 k2", 1)
    assert (one["properties"]["mine"], one["properties"]["other"]) == ("päckchen", "x")
    assert (viewed["body"], viewed["keys"]) == ("one", "k1 k2")


@pytest.mark.thorough
def test_a_batch_is_stored_in_one_queue_in_its_order(scene: Scene) -> None:
    scene.begin("batch")
    with scene.producer() as producer:
        sent = producer.ask(
            "send", topic=scene.topic, messages=[{"body": str(number)} for number in range(20)]
        )
        assert sent["status"] == "SEND_OK"
        assert len(sent["id"].split(",")) == len(sent["offset_id"].split(",")) == 20
    with scene.consumer("orderly") as consumer:
        messages = pushed(consumer, 20)
    assert bodies(messages) == [str(number) for number in range(20)]
    assert {message["queue"] for message in messages} == {sent["queue"]}


@pytest.mark.thorough
def test_a_topic_that_is_not_there_and_a_message_too_large_are_refused(scene: Scene) -> None:
    scene.begin("refused")
    with scene.producer() as producer:
        assert "error" in producer.ask("send", topic="not/legal", body="x")
        large = producer.ask("send", topic=scene.topic, body="x" * (5 << 20))
        assert "error" in large
        scene.send(producer, "fits")
    with scene.consumer() as consumer:
        assert bodies(pushed(consumer, 1)) == ["fits"]
        assert is_quiet(consumer)


@pytest.mark.thorough
def test_messages_of_a_queue_are_consumed_in_their_order_even_if_one_fails(scene: Scene) -> None:
    scene.begin("orderly")
    groups = ("red", "green", "blue")
    with scene.producer() as producer:
        for number in range(8):
            for group in groups:
                fails = {"fails": "2"} if (number, group) == (3, "red") else {}
                scene.send(producer, f"{group}-{number}", group=group, properties=fails)
    with scene.consumer("orderly") as consumer:
        messages = pushed(consumer, 26)
        assert is_quiet(consumer)
    found = bodies(messages)
    assert Counter(found)["red-3"] == 3
    for group in groups:
        of_group = [body for body in dict.fromkeys(found) if body.startswith(group)]
        assert of_group == [f"{group}-{number}" for number in range(8)]
    assert found[found.index("red-3") :].count("red-3") == 3
    later = [body for body in found if body in ("red-3", "red-4")]
    assert later == ["red-3", "red-3", "red-3", "red-4"]


def test_a_message_that_fails_comes_again_until_it_is_handled(scene: Scene) -> None:
    scene.begin("retried")
    with scene.producer() as producer:
        scene.send(producer, "failing", properties={"fails": "2"}, tag="a")
        scene.send(producer, "fine", tag="a")
    with scene.consumer(tags="a") as consumer:
        messages = pushed(consumer, 4)
        assert is_quiet(consumer)
    attempts = [message["attempt"] for message in messages if message["body"] == "failing"]
    assert attempts == [1, 2, 3]
    assert {message["topic"] for message in messages} == {scene.topic}
    assert len({message["id"] for message in messages}) == 2


@pytest.mark.thorough
def test_a_message_that_an_ordered_consumer_gives_up_is_a_dead_letter(scene: Scene) -> None:
    scene.begin("given-up", queues=2)
    with scene.producer() as producer:
        scene.send(producer, "poison", group="g", properties={"fails": "1000"})
        scene.send(producer, "after it", group="g")
    with scene.consumer("orderly") as consumer:
        assert bodies(pushed(consumer, 5)) == ["poison"] * 4 + ["after it"]
        assert is_quiet(consumer)
    (letter,) = dead_letters(scene.up, scene.group)
    assert letter["attempts"] == 4
    assert letter["topic"] == scene.topic


@pytest.mark.thorough
def test_tags_and_sql_choose_messages(scene: Scene) -> None:
    scene.begin("filtered")
    with scene.producer() as producer:
        for number, tag in enumerate("abcabc"):
            scene.send(producer, f"{tag}{number}", tag=tag, properties={"n": str(number)})
    with scene.consumer(tags="a || c") as consumer:
        assert sorted(bodies(pushed(consumer, 4))) == ["a0", "a3", "c2", "c5"]
        assert is_quiet(consumer)
    scene.group += "-by-sql"
    with scene.consumer(tags="sql:n > 2 AND TAGS <> 'a'") as consumer:
        assert sorted(bodies(pushed(consumer, 2))) == ["b4", "c5"]
        assert is_quiet(consumer)


@pytest.mark.thorough
def test_a_delayed_message_comes_after_its_level(scene: Scene) -> None:
    scene.begin("delayed")
    with scene.consumer() as consumer, scene.producer() as producer:
        scene.send(producer, "later", delay_level=1)
        scene.send(producer, "now")
        assert bodies(pushed(consumer, 2)) == ["now", "later"]


@pytest.mark.thorough
def test_a_broadcast_reaches_every_member(scene: Scene) -> None:
    scene.begin("broadcast")
    with scene.consumer("broadcast") as first, scene.consumer("broadcast") as second:
        with scene.producer() as producer:
            scene.send(producer, "to all", "and again")
        for consumer in (first, second):
            assert sorted(bodies(pushed(consumer, 2))) == ["and again", "to all"]
            assert is_quiet(consumer)


@pytest.mark.thorough
def test_a_member_that_dies_leaves_its_queues_to_the_others(scene: Scene) -> None:
    scene.begin("members")
    sent: set[str] = set()
    with scene.producer() as producer, scene.consumer() as staying:
        dying = scene.consumer_that_dies()
        try:
            first = None
            while first is None:  # until it has its share of the queues
                assert len(sent) < 400, "it gets none"
                some = [str(len(sent) + number) for number in range(8)]
                scene.send(producer, *some)
                sent.update(some)
                first = dying.pushed(0.5)
        finally:
            dying.end()  # kill -9
        found = {first["body"]}
        while (handled := dying.pushed(0)) is not None:
            found.add(handled["body"])
        # What the dead one had not handled comes again: nothing is lost.
        while found < sent:
            found.update(bodies(pushed(staying, 1)))


@pytest.mark.thorough
def test_a_consumer_that_pulls_goes_on_where_it_committed(scene: Scene) -> None:
    scene.begin("pulled")
    with scene.producer() as producer:
        scene.send(producer, "one", "two")
        with scene.consumer("pull") as consumer:
            assert sorted(bodies(received(consumer, 2))) == ["one", "two"]
            assert consumer.ask("commit") == {"committed": True}
        scene.send(producer, "three")
    with scene.consumer("pull") as consumer:
        assert bodies(received(consumer, 1)) == ["three"]


def test_a_transaction_shows_its_message_once_it_is_committed(scene: Scene) -> None:
    scene.begin("transactions")
    with scene.consumer() as consumer, scene.producer() as producer:
        scene.send(producer, "rolled back", end="rollback")
        scene.send(producer, "committed", end="commit")
        scene.send(producer, "asked", end="open", properties={"answer": "commit"})
        scene.send(producer, "asked in vain", end="open", properties={"answer": "rollback"})
        assert sorted(bodies(pushed(consumer, 2))) == ["asked", "committed"]
        assert is_quiet(consumer)


def test_a_request_is_replied_to_by_whoever_consumes_it(scene: Scene) -> None:
    scene.begin("requests")
    with scene.consumer() as consumer, scene.producer() as producer:
        for number in range(4):  # on each of two brokers
            body, reply = f"ask {number}", f"reply {number}"
            asked = {"topic": scene.topic, "body": body, "properties": {"reply": reply}}
            assert producer.ask("request", **asked) == {"reply": reply}
        assert len(pushed(consumer, 4)) == 4


@pytest.mark.thorough
def test_a_topic_begins_when_something_is_sent_to_it(scene: Scene) -> None:
    scene.begin("before")
    topic = f"{scene.topic}-made-by-sending"
    with scene.producer() as producer:
        for body in ("one", "two", "three"):
            assert producer.ask("send", topic=topic, body=body)["status"] == "SEND_OK"
        assert scene.up.knows(topic)
        scene.topic = topic
        with scene.consumer() as consumer:
            assert sorted(bodies(pushed(consumer, 3))) == ["one", "three", "two"]


@pytest.mark.thorough
def test_a_group_moves_between_remoting_and_our_own_consumers_without_losing_its_place(
    scene: Scene,
) -> None:
    scene.begin("moved")

    def consume(count: int) -> list[str]:
        done = scene.up.run(
            "consume", scene.topic, "--group", scene.group, "--count", str(count), "--from", "first"
        )
        return sorted(done.stdout.split())

    with scene.producer() as producer:
        scene.send(producer, "1", "2", "3")
        with scene.consumer() as consumer:
            assert sorted(bodies(pushed(consumer, 3))) == ["1", "2", "3"]
        scene.send(producer, "4", "5")
        assert consume(2) == ["4", "5"]
        scene.send(producer, "6")
        with scene.consumer() as consumer:
            assert bodies(pushed(consumer, 1)) == ["6"]
            assert is_quiet(consumer)
