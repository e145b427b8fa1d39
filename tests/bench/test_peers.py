"""`aerobee bench peers`: nothing is fetched unasked, and ours and the peers' figures are alike."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import click
import pytest

from aerobee.bench.peer_names import PEER_NAMES
from peers import fetching, run
from peers.own_broker import OwnBroker
from peers.parts import (
    ECHO,
    IDLE_CLIENTS,
    PAGE_CACHE,
    SYNC_FLUSH,
    V2,
    V2_IDLE,
    Answer,
    Way,
)
from peers.rocketmq import OwnV2
from peers.table import Comparison
from tests.support.cache_folder import cache_folder
from tests.support.local_up import AEROBEE

SINGLE, ONE = PAGE_CACHE[:2]


def bench_peers(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AEROBEE, "bench", "peers", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        check=False,
    )


def answer(messages: int, p50_us: float = 100.0) -> Answer:
    return Answer(messages, 1.0, messages, p50_us, 2 * p50_us, server_us=5.0)


def test_the_table_has_medians_and_ours_to_the_best_peer() -> None:
    compared = Comparison(["Aerobee", "A", "B"])
    for title, rates in {
        "Aerobee": (900, 100, 500),
        "A": (400, 400, 400),
        "B": (999, 250, 2),
    }.items():
        for rate in rates:
            compared.add(title, SINGLE, answer(rate))
    lines = compared.as_markdown().splitlines()
    assert lines[0] == "|  | Aerobee | A | B | ours / the best |"
    assert lines[2] == "| single, 64 in flight, messages/s | 500 | 400 | 250 | 1.25 |"


def test_the_best_time_is_the_shortest() -> None:
    compared = Comparison(["Aerobee", "A", "B"])
    for title, p50_us in (("Aerobee", 300.0), ("A", 200.0), ("B", 1_000.0)):
        compared.add(title, ONE, answer(1, p50_us))
    assert "| single, 1 in flight, p50, µs | 300 | 200 | 1,000 | 1.50 |" in compared.as_markdown()


def test_what_a_system_does_not_take_part_in_stays_empty() -> None:
    compared = Comparison(["Aerobee", "A", "grpc-go"])
    for title, named in (("Aerobee", SINGLE), ("A", SINGLE), ("Aerobee", ECHO[0])):
        compared.add(title, named, answer(100))
    assert "| unary echo, 64 in flight, messages/s | 100 |  |  |  |" in compared.as_markdown()


def test_nothing_is_fetched_unless_it_is_asked_for(tmp_path: Path) -> None:
    done = bench_peers("kafka", "nats", cache=tmp_path)
    assert done.returncode == 3
    for said in ("kafka_2.13:4.1.1", "Maven Central", "nats-server", "--fetch", str(tmp_path)):
        assert said in done.stderr
    assert "redis" not in done.stderr.partition("nats-server")[0]
    assert list(tmp_path.iterdir()) == []


def test_peers_are_named_for_no_other_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [*AEROBEE, "bench", "produce", "nats"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "for `aerobee bench peers`" in done.stderr


@pytest.mark.parametrize("change", ["another", "missing", "unknown"])
def test_files_with_other_checksums_are_refused(tmp_path: Path, change: str) -> None:
    jars, sums = tmp_path / "jars", tmp_path / "jars.sha256"
    jars.mkdir()
    for name in ("a.jar", "b.jar"):
        (jars / name).write_text(name)
    sums.write_text(
        "".join(
            f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("a.jar", "b.jar")
        )
    )
    fetching.check_sums(jars, sums)
    match change:
        case "another":
            (jars / "b.jar").write_text("changed on the way")
        case "missing":
            (jars / "b.jar").unlink()
        case "unknown":
            (jars / "c.jar").write_text("c")
    with pytest.raises(click.ClickException, match=r"\b[bc]\.jar"):
        fetching.check_sums(jars, sums)


async def test_a_folder_that_could_not_be_filled_is_not_there(tmp_path: Path) -> None:
    async def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("the registry is away")

    with pytest.raises(RuntimeError):
        await fetching.fill_folder(tmp_path / "peer", fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.slow
async def test_our_own_side_measures_every_part() -> None:
    compared = await run.compare(
        [], body_bytes=1024, rounds=1, scale=0.1, fetch=False, say=lambda step: None
    )
    title = OwnBroker.title
    for named in (*PAGE_CACHE, *SYNC_FLUSH):
        (measured,) = compared.answers[named.name, title]
        assert measured.messages > 0, named
        assert measured.server_us > 0, named


@pytest.mark.thorough
@pytest.mark.slow
def test_the_calls_of_apaches_clients_are_measured_without_apache(tmp_path: Path) -> None:
    done = subprocess.run(
        [*AEROBEE, "bench", "v2", "--rounds", "1", "--scale", "0.05", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["part"] for row in rows] == [one.name for one in (*V2, *V2_IDLE) if one.name]
    assert {row["system"] for row in rows} == {OwnV2.title}
    rounds = {row["part"]: row["rounds"][0] for row in rows}
    for named in (*V2, *V2_IDLE):
        if named.part.way is Way.GATHER:
            assert rounds[named.name]["sent"] == IDLE_CLIENTS * 0.05
            assert rounds[named.name]["server_bytes"] > 0
        elif named.name and named.part.way is not Way.IDLE:
            assert rounds[named.name]["messages"] > 0, named


def test_the_command_knows_each_peer() -> None:
    assert tuple(run.PEERS) == PEER_NAMES


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", run.PEERS)
def test_a_peer_that_was_fetched_before_is_measured_beside_us(name: str) -> None:
    """Fetching takes minutes and the network: `aerobee bench peers --fetch` has to do it."""
    cache = cache_folder().parent
    arguments = (name, "--rounds", "1", "--scale", "0.1", "--json")
    done = bench_peers(*arguments, cache=cache)
    if "not fetched yet" in done.stderr:
        pytest.skip(f"{name} is not here: `aerobee bench peers {name} --fetch` fetches it")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    titles = {row["system"] for row in rows}
    assert titles == {"Aerobee", run.PEERS[name]().title}
    # In so short a part, Java may still be compiling: what was sent counts.
    assert all(answer["sent"] > 0 for row in rows for answer in row["rounds"]), rows
