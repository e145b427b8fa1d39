"""What is not known is never shown as nothing: every command that reads says who did not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from aerobee import (
    AdminClient,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
    errors,
)
from aerobee.cli.failures import PARTIAL
from aerobee.testing import RealCluster
from tests.support.cli_here import CliHere
from tests.support.waiting import until

AWAY = ["broker-b"]
BROKERS = ("broker-a", "broker-b")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Two broker groups, and on each something of everything."""
    with RealCluster(tmp_path_factory.mktemp("cluster"), groups=2) as cluster:
        cluster.create_topic("s", queues=2)
        cluster.create_topic("x", queues=2, attributes={"message.type": "TRANSACTION"})
        CliHere(cluster.nameservers)("group", "configure", "failing", "--retries-max", "0")
        asyncio.run(_filled(cluster.nameservers))
        yield cluster


async def _filled(nameservers: str) -> None:
    async with Producer(nameservers) as producer:
        for broker in BROKERS:
            queue = MessageQueue("s", broker, 0)
            await producer.send(Message("s", b"late", delay=3_600.0), queue=queue)
            for _ in range(3):
                await producer.send(Message("s", b"now", keys=["k"]), queue=queue)
            await producer.begin(
                Message("x", b"half"), queue=MessageQueue("x", broker, 0), check_after_s=3_600
            )

    def refuse(_messages: Sequence[ReceivedMessage]) -> None:
        raise ValueError("no")

    failing = PushConsumer("failing", refuse, nameservers=nameservers, start_from=StartFrom.FIRST)
    failing.subscribe("s")
    reading = PullConsumer("reading", nameservers=nameservers, start_from=StartFrom.FIRST)
    reading.subscribe("s")
    async with AdminClient(nameservers) as admin, failing, reading:

        async def is_done() -> bool:
            await reading.poll(1, timeout=0.1)
            letters = [each async for each in admin.dead_letters.find("failing")]
            group = await admin.groups.describe("reading")
            places = {each.queue.broker_name for each in group.queues if each.queue.topic == "s"}
            return len(letters) == 6 and places == set(BROKERS)

        await until(is_done)


@pytest.fixture(scope="module")
def before(whole: RealCluster) -> dict[str, Any]:
    """What commands answered while both brokers were there."""
    cli = CliHere(whole.nameservers)
    return {name: cli.json(*name.split()) for name in COUNTS}


@pytest.fixture(scope="module")
def cli(whole: RealCluster, before: dict[str, Any]) -> CliHere:
    """Commands, after one of the two brokers has gone and nothing of it is registered."""
    whole.stop_broker("broker-b")
    cli = CliHere(whole.nameservers)
    assert {each["broker"] for each in cli.json("cluster", "show")["brokers"]}
    return cli


COUNTS: dict[str, Callable[[Any], int]] = {
    "schedule list s": lambda found: len(found["messages"]),
    "schedule list": lambda found: len(found["messages"]),
    "transaction list x": lambda found: len(found["transactions"]),
    "dead-letter list failing": lambda found: len(found["letters"]),
    "dead-letter resend failing --dry-run": lambda found: found["resent"],
    "dead-letter drop failing --dry-run": lambda found: found["dropped"],
    "message query s --key k": lambda found: len(found["messages"]),
    "group show reading": lambda found: len(found["queueList"]),
    "offset delete reading s --dry-run": lambda found: len(found["queues"]),
}
"""Commands whose document names who is missing, and what is less without them."""


@pytest.mark.parametrize("command", COUNTS)
def test_a_smaller_number_names_the_brokers_that_are_missing(
    cli: CliHere, before: dict[str, Any], command: str
) -> None:
    found = cli.json(*command.split(), code=PARTIAL)
    assert before[command]["unanswered"] == []
    assert found["unanswered"] == AWAY
    assert 0 < COUNTS[command](found) < COUNTS[command](before[command])
    assert "no answer from broker-b" in cli(*command.split(), code=PARTIAL).stderr


@pytest.mark.parametrize(
    ("command", "value"),
    [
        ("group list", lambda found: [each["lag"] for each in found]),
        ("group lag", lambda found: [each["lag"] for each in found]),
        ("group lag reading", lambda found: [each["lag"] for each in found]),
        ("group show reading", lambda found: [found["lag"]]),
        ("topic list --counts", lambda found: [each["messages"] for each in found]),
        ("topic list --counts --all", lambda found: [each["messages"] for each in found][:1]),
        ("topic show s", lambda found: [found["queues"][-1]["maxOffset"]]),
    ],
)
def test_a_count_that_is_not_known_is_null(cli: CliHere, command: str, value: Any) -> None:
    found = cli.json(*command.split(), code=PARTIAL)
    assert set(value(found)) == {None}
    assert all(
        each["unanswered"] == AWAY for each in (found if isinstance(found, list) else [found])
    )
    shown = cli(*command.split(), code=PARTIAL)
    assert "no answer from broker-b" in shown.stderr


def test_a_lag_is_known_where_all_brokers_of_the_topic_answer(cli: CliHere) -> None:
    """One broker that is away must not hide the lag of everything else."""
    nowhere_else = "only-a"
    cli("topic", "create", nowhere_else, "--queues", "1")
    cli("offset", "reset", "narrow", nowhere_else, "--to", "first", "--yes", "--create")
    (found,) = cli.json("group", "lag", "narrow", code=PARTIAL)
    assert (found["topic"], found["lag"], found["unanswered"]) == (nowhere_else, 0, AWAY)


@pytest.mark.parametrize(
    "command",
    [
        "group show nobody-knows",
        "dead-letter list nobody-knows",
        "message get broker-b:0",
        "message get 7F00000100002A9F0000000000000000",
        "message get nobody-knows --topic s",
        "transaction commit x nobody-knows --yes",
        "offset reset reading s --to first --yes",
        "group configure reading --retries-max 1",
        "group delete reading --yes",
    ],
)
def test_what_a_missing_broker_may_have_is_not_said_to_be_nowhere(
    cli: CliHere, command: str
) -> None:
    assert "broker" in cli(*command.split(), code=3).stderr


def test_doctor_counts_the_brokers_that_should_have_answered(cli: CliHere) -> None:
    found = cli.json("doctor", code=2)
    assert (found["brokers"], found["answered"], found["unanswered"]) == (2, 1, AWAY)


def test_a_file_is_not_compared_with_a_part_of_the_cluster(cli: CliHere, tmp_path: Path) -> None:
    file = tmp_path / "wanted.yaml"
    file.write_text("groups:\n- name: reading\n  retriesMax: 16\n")
    refused = cli("apply", "-f", str(file), "--dry-run", code=3)
    assert "broker-b does not answer" in refused.stderr


def test_programs_are_told_who_did_not_answer(whole: RealCluster, cli: CliHere) -> None:
    async def asked() -> list[tuple[str, ...]]:
        async with AdminClient(whole.nameservers) as admin:
            groups = admin.groups
            letters = admin.dead_letters.find("failing")
            assert len([each async for each in letters]) == 3
            answers: list[Any] = [
                await groups.list(),
                await groups.describe_all(),
                await groups.describe("reading"),
                await groups.removed_unread("reading"),
                await groups.committed_offsets("reading", "s"),
                await admin.topics.list(with_own=True),
                await admin.schedules.list(),
                await admin.transactions.list(),
                await admin.messages.by_key("s", "k"),
                letters,
            ]
            assert (await groups.describe("reading")).lag is None
            with pytest.raises(errors.NoBrokerAvailable, match="broker-b"):
                await admin.topics.get("%DLQ%nobody-knows")
            return [each.unanswered for each in answers]

    assert set(asyncio.run(asked())) == {tuple(AWAY)}
