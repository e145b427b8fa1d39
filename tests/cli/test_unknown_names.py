"""A name that does not exist is an error that says which one may be meant; nothing is made by a
slip of the fingers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aerobee import BlockingProducer, Message
from aerobee.testing import RealCluster
from tests.support.cli_here import CliHere


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHere]:
    with RealCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.create_topic("work", queues=2)
        with BlockingProducer(cluster.nameservers) as producer:
            producer.send(Message("work", b"1"))
        cli = CliHere(cluster.nameservers)
        cli("offset", "reset", "billing", "work", "--to", "first", "--yes", "--create")
        yield cli


@pytest.mark.parametrize(
    "command",
    [
        "topic show wrok",
        "topic update wrok --queues 4",
        "topic delete wrok --yes",
        "message query wrok --key k",
        "message get nothing --topic wrok",
        "schedule list wrok",
        "transaction list wrok",
        "consume wrok --count 1",
        "offset reset billing wrok --to first --yes",
    ],
)
def test_an_unknown_topic_is_an_error_that_suggests_one(cli: CliHere, command: str) -> None:
    assert "did you mean 'work'?" in cli(*command.split(), code=1).stderr


@pytest.mark.parametrize(
    "command",
    [
        "group show biling",
        "group lag biling",
        "group delete biling --yes",
        "group delete biling --dry-run",
        "dead-letter list biling",
        "dead-letter show biling nothing",
        "dead-letter resend biling --yes",
        "dead-letter resend biling --dry-run",
        "dead-letter drop biling --yes",
        "offset reset biling work --to first --yes",
        "offset reset biling work --to first --dry-run",
        "offset delete biling work --yes",
        "offset delete biling work --dry-run",
    ],
)
def test_an_unknown_group_is_an_error_that_suggests_one(cli: CliHere, command: str) -> None:
    assert "did you mean 'billing'?" in cli(*command.split(), code=1).stderr
    assert [each["group"] for each in cli.json("group", "list")] == ["billing"]


def test_doctor_does_not_call_well_what_it_does_not_know(cli: CliHere) -> None:
    assert "did you mean 'billing'?" in cli("doctor", "--group", "biling", code=64).stderr
    assert "did you mean 'work'?" in cli("doctor", "--topic", "wrok", code=64).stderr


def test_a_group_that_settings_make_is_told(cli: CliHere) -> None:
    told = cli("group", "configure", "biling", "--retries-max", "3").stderr
    assert "group biling is new" in told
    assert "did you mean 'billing'?" in told
    assert "is new" not in cli("group", "configure", "biling", "--retries-max", "4").stderr
    cli("group", "delete", "biling", "--yes")
