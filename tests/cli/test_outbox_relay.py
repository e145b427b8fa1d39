"""`aerobee outbox relay`: what a database has is sent once, by a process that is told to end."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sql

from aerobee import Message, Outbox
from aerobee.testing import RealCluster
from tests.support.cli_here import CliHere
from tests.support.local_up import AEROBEE, PATIENCE_S
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with RealCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.create_topic("orders", queues=1)
        yield cluster


class Database:
    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/shop.db"
        self.engine = sql.create_engine(self.url)
        self.outbox = Outbox()

    def add(self, topic: str, count: int) -> None:
        self.outbox.create(self.engine)
        with self.engine.begin() as connection:
            self.outbox.add(connection, *[Message(topic, b"%d" % each) for each in range(count)])

    def left(self) -> int:
        with self.engine.connect() as connection:
            count = sql.select(sql.func.count()).select_from(self.outbox.messages)
            return int(connection.execute(count).scalar_one())


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path)
    yield database
    database.engine.dispose()


def test_what_is_there_is_sent_once(cluster: RealCluster, database: Database) -> None:
    cli = CliHere(cluster.nameservers)
    database.add("orders", 230)
    relay = ("outbox", "relay", database.url, "--once")
    assert cli.json(*relay) == {"table": "aerobee_outbox", "sent": 230}
    assert cli(*relay).stdout == "sent 0 messages\n"
    shown = cli.json("topic", "show", "orders")
    assert sum(each["maxOffset"] for each in shown["queues"]) == 230


async def test_a_relay_sends_what_comes_until_it_is_told_to_end(
    cluster: RealCluster, database: Database
) -> None:
    database.add("orders", 3)
    arguments = (*AEROBEE, "outbox", "relay", "--nameserver", cluster.nameservers)
    with subprocess.Popen(
        [*arguments, "--poll", "0.05", database.url], stdout=subprocess.PIPE, text=True
    ) as relay:
        await until(lambda: database.left() == 0)
        database.add("orders", 4)
        await until(lambda: database.left() == 0)
        relay.send_signal(signal.SIGTERM)
        said, _ = relay.communicate(timeout=PATIENCE_S)
    assert (relay.returncode, said) == (0, "sent 7 messages\n")


def test_what_is_wrong_is_said_in_a_sentence(cluster: RealCluster, database: Database) -> None:
    cli = CliHere(cluster.nameservers)
    relay = ("outbox", "relay", "--once")
    assert "missing argument" in cli(*relay, code=2).stderr
    assert "write it as sqlite:///" in cli(*relay, "shop.db", code=2).stderr
    assert "pip install pymysql" in cli(*relay, "mysql+pymysql://h/x", code=3).stderr
    refused = cli(*relay, database.url, code=3).stderr
    assert "no such table: aerobee_outbox" in refused
    assert "--table" in refused
    database.add("no topic can have this name", 0)
    database.add("orders", 1)
    assert "no nameserver answers" in CliHere("127.0.0.1:1")(*relay, database.url, code=3).stderr
    assert database.left() == 1
