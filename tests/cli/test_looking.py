"""Commands that only look: topics without a group, a group's lag, counts, versions, completion."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from aerobee.cli.group_lag import TopicLag, with_rates
from aerobee.rpc.core import frames
from tests.support.compiled_form import is_compiled
from tests.support.local_up import AEROBEE, PATIENCE_S, Up, numbers, received, running, sent
from tests.support.ports import free_port


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up")) as up:
        up.run("topic", "create", "looked-at", "--queues", "2")
        sent(up, "looked-at", numbers(300), "--sharding-key", "one")
        sent(up, "looked-at", ["tagged"], "--tag", "t", "--sharding-key", "one")
        yield up


def completed(cluster: Up, *words: str, nameserver: str = "") -> list[str]:
    """What bash is offered for the last word."""
    environment = {
        **os.environ,
        "AEROBEE_NAMESERVER": nameserver or cluster.document()["nameserver"],
        "_AEROBEE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("aerobee", *words)),
        "COMP_CWORD": str(len(words)),
    }
    program = "from aerobee.cli.__main__ import main; main(prog_name='aerobee')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.slow
def test_a_topic_is_read_without_a_group_and_without_a_trace(cluster: Up) -> None:
    asked = ("consume", "looked-at", "--idle-timeout", "1")
    assert cluster.run(*asked).stdout.splitlines() == [*numbers(300), "tagged"]
    assert cluster.run(*asked, "--tag", "t").stdout == "tagged\n"
    (queue,) = [
        f"{each['broker']}:{each['queue']}"
        for each in cluster.json("topic", "show", "looked-at")["queues"]
        if each["maxOffset"]
    ]
    some = cluster.run(*asked, "--queue", queue, "--offset", "100", "--count", "3").stdout
    assert some.splitlines() == numbers(300)[100:103]
    assert cluster.run(*asked, "--from", "last").stdout == ""
    assert cluster.json("group", "list") == []


@pytest.mark.slow
def test_a_group_has_no_place_of_the_command_line(cluster: Up) -> None:
    refused = cluster.run("consume", "looked-at", "--group", "g", "--offset", "3", expect=2)
    assert "aerobee offset reset" in refused.stderr
    refused = cluster.run("consume", "looked-at", "--queue", "broker-z:0", expect=2)
    assert "its queues are broker-a:0, broker-a:1" in refused.stderr


@pytest.mark.slow
def test_topics_are_listed_with_their_messages(cluster: Up) -> None:
    (listed,) = cluster.json("topic", "list")
    assert (listed["topic"], listed["queues"], listed["messages"]) == ("looked-at", 2, 301)
    (listed,) = cluster.json("topic", "list", "--no-counts")
    assert "messages" not in listed


@pytest.mark.slow
def test_the_lag_of_a_group_is_what_it_has_not_read(cluster: Up) -> None:
    received(cluster, "looked-at", "readers", 100)
    (told,) = cluster.json("group", "lag", "readers")
    place = {"group": "readers", "topic": "looked-at"}
    assert told == {**place, "members": 0, "lag": 201, "unanswered": []}
    watching = ("group", "lag", "readers", "--watch", "--interval", "0.2", "--json")
    with subprocess.Popen(
        [*AEROBEE, *watching],
        env={**os.environ, "AEROBEE_NAMESERVER": cluster.document()["nameserver"]},
        stdout=subprocess.PIPE,
        text=True,
    ) as watched:
        assert watched.stdout is not None
        lines = [watched.stdout.readline() for _ in range(2)]
        watched.terminate()
    assert "outPerSecond" not in lines[0]
    assert '"outPerSecond": 0.0' in lines[1]
    assert cluster.run("group", "lag", "unknown", expect=1).stdout == ""


def test_a_group_that_reads_faster_than_messages_come_will_have_caught_up() -> None:
    before = [TopicLag("g", "t", 1, lag=1_000, committed=500, ends=1_500)]
    now = [TopicLag("g", "t", 1, lag=800, committed=800, ends=1_600)]
    (told,) = with_rates(now, before, apart_s=10.0)
    assert (told.read_per_s, told.come_per_s, told.caught_up_s) == (30.0, 10.0, 40.0)
    (slower,) = with_rates(now, [TopicLag("g", "t", 1, 700, 700, 1_400)], apart_s=10.0)
    assert slower.caught_up_s is None


def test_a_reset_to_an_earlier_offset_is_no_rate() -> None:
    before = [TopicLag("g", "t", 1, lag=0, committed=500, ends=500)]
    (told,) = with_rates([TopicLag("g", "t", 1, 500, 0, 500)], before, apart_s=2.0)
    assert told.read_per_s is None


@pytest.mark.slow
def test_versions_of_the_program_and_of_the_brokers(cluster: Up) -> None:
    document = cluster.json("version")
    assert document["aerobee"] == version("aerobee")
    assert document["brokers"] == [{"broker": "broker-a/0", "version": version("aerobee")}]
    alone = cluster.run("version", "--nameserver", f"127.0.0.1:{free_port()}")
    count = document["compiled_modules"]
    form = f"{count} modules compiled" if is_compiled(frames) else "pure Python"
    assert alone.stdout.startswith(f"aerobee {version('aerobee')} ({form})\npython 3")
    assert (count > 0) == is_compiled(frames)
    assert "no cluster at 127.0.0.1:" in alone.stderr


@pytest.mark.slow
def test_names_are_completed_from_the_cluster(cluster: Up) -> None:
    assert completed(cluster, "topic", "show", "loo") == ["looked-at"]
    received(cluster, "looked-at", "typists", 1)
    assert completed(cluster, "consume", "looked-at", "--group", "typ") == ["typists"]
    assert completed(cluster, "cluster", "clean", "") == ["broker-a"]


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_completes_nothing_and_soon(cluster: Up) -> None:
    begun_s = time.monotonic()
    assert completed(cluster, "topic", "show", "", nameserver=f"127.0.0.1:{free_port()}") == []
    assert time.monotonic() - begun_s < PATIENCE_S / 2


def test_commands_are_completed_without_loading_them() -> None:
    program = (
        "import sys\n"
        "import click\n"
        "from aerobee.cli.__main__ import main\n"
        "found = main.shell_complete(click.Context(main), 'b')\n"
        "print([item.value for item in found])\n"
        "assert 'aerobee.broker' not in sys.modules\n"
        "assert 'aerobee.cli.commands.broker' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stdout.decode().strip() == "['broker-group', 'broker', 'bench']"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    done = subprocess.run(
        [*AEROBEE, "completion", shell], check=True, capture_output=True, text=True
    )
    assert "_AEROBEE_COMPLETE" in done.stdout
    if shell == "bash":
        checked = subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=False)
        assert checked.returncode == 0
    if shell == "zsh":  # The context of all calls but the first, which loads the file, is shfunc.
        assert "$zsh_eval_context[-1] == (loadautofunc|shfunc) ]]" in done.stdout


@pytest.mark.slow
def test_quiet_leaves_out_remarks_but_not_errors(cluster: Up) -> None:
    asked = ("consume", "looked-at", "--from", "last", "--count", "1", "--idle-timeout", "0.5")
    assert "0 of 1 messages arrived" in cluster.run(*asked, expect=1).stderr
    assert cluster.run(*asked, "--quiet", expect=1).stderr == ""
    assert "there is no topic" in cluster.run("topic", "show", "z", "--quiet", expect=1).stderr


@pytest.mark.slow
def test_topics_are_changed_with_a_document_for_programs(cluster: Up) -> None:
    (made,) = cluster.json("topic", "create", "for-programs", "--queues", "1")
    assert (made["topic"], made["queuesByBroker"]) == ("for-programs", {"broker-a": 1})
    assert cluster.json("topic", "alter", "for-programs", "--queues", "3")["queues"] == 3
    deleted = cluster.json("topic", "delete", "for-programs", "--yes")
    assert deleted == {"topic": "for-programs", "deleted": True}
