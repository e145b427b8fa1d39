"""`aerobee up` and the client commands, as a user runs them: real processes, real signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

AEROBEE = (sys.executable, "-m", "aerobee.cli")
PATIENCE_S = 60.0


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The condition's first true value."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.02)
    return value


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def processes_naming(folder: Path) -> list[str]:
    """Living processes that have the folder on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
    return found


class Up:
    """A running `aerobee up` on free ports."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.data = folder / "data"
        self.ready_file = folder / "ready.json"
        self.output = (folder / "up.log").open("a+")
        self.process = subprocess.Popen(
            [
                *AEROBEE,
                "up",
                "--data",
                str(self.data),
                "--ports",
                "auto",
                "--ready-file",
                str(self.ready_file),
                *arguments,
            ],
            stdout=self.output,
            stderr=self.output,
        )

    def wait_ready(self) -> dict[str, Any]:
        eventually(
            lambda: self.ready_file.exists() or self.process.poll() is not None, "the ready file"
        )
        assert self.process.poll() is None, self.said()
        return self.document()

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.ready_file.read_text())
        return document

    def said(self) -> str:
        self.output.seek(0)
        return self.output.read()

    def pids(self) -> list[int]:
        return [pid for pid in self.document()["pids"].values() if pid is not None]

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def run(
        self, *arguments: str, given: str = "", expect: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """A client command against this cluster."""
        done = subprocess.run(
            [*AEROBEE, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={**os.environ, "AEROBEE_NAMESERVER": self.document()["nameserver"]},
        )
        assert done.returncode == expect, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    def knows(self, topic: str) -> bool:
        """Whether the topic's queues can be asked for their offsets."""
        return not subprocess.run(
            [*AEROBEE, "topic", "show", topic],
            capture_output=True,
            timeout=PATIENCE_S,
            env={**os.environ, "AEROBEE_NAMESERVER": self.document()["nameserver"]},
        ).returncode

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)


@contextlib.contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Up]:
    up = Up(folder, *arguments)
    try:
        up.wait_ready()
        yield up
    finally:
        if up.process.poll() is None:
            up.end(signal.SIGTERM)
        up.output.close()


def numbers(count: int, start: int = 0) -> list[str]:
    return [f"message {number}" for number in range(start, start + count)]


def sent(up: Up, topic: str, lines: Sequence[str], *flags: str) -> None:
    up.run("produce", topic, *flags, given="\n".join(lines) + "\n")


def received(up: Up, topic: str, group: str, count: int, *flags: str) -> list[str]:
    done = up.run("consume", topic, "--group", group, "--count", str(count), *flags)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two broker groups that all tests of the client commands share; each has its own topics."""
    with running(tmp_path_factory.mktemp("up"), "--brokers", "2") as up:
        yield up


def test_the_ready_file_says_where_everything_is(cluster: Up) -> None:
    document = cluster.document()
    assert [broker["name"] for broker in document["brokers"]] == ["broker-a", "broker-b"]
    assert set(document["pids"]) == {"etcd", "nameserver", "broker-a", "broker-b"}
    assert all(is_alive(pid) for pid in cluster.pids())
    assert document["pid"] == cluster.process.pid
    assert "ready in " in cluster.said()


def test_what_was_produced_is_consumed_once_by_a_group(cluster: Up) -> None:
    lines = numbers(500)
    sent(cluster, "once", lines)
    assert sorted(received(cluster, "once", "readers", 500)) == sorted(lines)
    nothing = cluster.run("consume", "once", "--group", "readers", "--idle-timeout", "1.5")
    assert nothing.stdout == ""
    assert sorted(received(cluster, "once", "others", 500)) == sorted(lines)


def test_a_count_commits_no_more_than_it_printed(cluster: Up) -> None:
    lines = numbers(300)
    sent(cluster, "counted", lines)
    first = received(cluster, "counted", "g", 120)
    second = received(cluster, "counted", "g", 180)
    assert sorted(first + second) == sorted(lines)


def test_fewer_messages_than_counted_are_a_negative_answer(cluster: Up) -> None:
    sent(cluster, "few", numbers(2))
    done = cluster.run(
        "consume", "few", "--group", "g", "--count", "5", "--idle-timeout", "2", expect=1
    )
    assert sorted(done.stdout.splitlines()) == numbers(2)


def test_a_tag_expression_selects(cluster: Up) -> None:
    for tag in ("red", "green", "blue"):
        sent(cluster, "tagged", [f"{tag} {line}" for line in numbers(50)], "--tag", tag)
    got = received(cluster, "tagged", "g", 100, "--tag", "red || blue")
    assert {line.split()[0] for line in got} == {"red", "blue"}


def test_json_lines_go_out_as_they_came_in(cluster: Up) -> None:
    line = {"body": "grüße", "tag": "t", "keys": ["k1", "k2"], "properties": {"colour": "blue"}}
    sent(cluster, "json", [json.dumps(line)], "--format", "json")
    (printed,) = received(cluster, "json", "g", 1, "--format", "json")
    document = json.loads(printed)
    assert {name: document[name] for name in line} == line
    sent(cluster, "json-again", [printed], "--format", "json")
    (again,) = received(cluster, "json-again", "g", 1, "--format", "json")
    assert {name: json.loads(again)[name] for name in line} == line


def test_one_sharding_key_keeps_the_order(cluster: Up) -> None:
    lines = numbers(2_000)
    sent(cluster, "ordered", lines, "--sharding-key", "k")
    assert received(cluster, "ordered", "g", 2_000) == lines


def test_broadcasting_members_each_get_everything(cluster: Up, home: Path) -> None:
    sent(cluster, "news", numbers(40))
    for member in ("m1", "m2"):
        offsets = home / ".rocketmq_offsets" / member / "watchers" / "offsets.json"
        assert not offsets.exists()
        got = received(cluster, "news", "watchers", 40, "--broadcast", "--client-id", member)
        assert sorted(got) == sorted(numbers(40))
        assert offsets.exists()


def test_produce_reports_what_it_did(cluster: Up, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("\n".join(numbers(1_000)) + "\n\n")
    figures = cluster.json("produce", "reported", str(file))
    assert (figures["topic"], figures["messages"]) == ("reported", 1_000)
    assert figures["bytes"] == sum(len(line) for line in numbers(1_000))
    assert figures["messagesPerSecond"] > 0


def test_a_rate_is_kept(cluster: Up, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("\n".join(numbers(100)))
    figures = cluster.json("produce", "slow", str(file), "--rate", "100")
    assert 0.9 <= figures["seconds"] <= 3.0


def test_topics_are_created_shown_changed_and_deleted(cluster: Up) -> None:
    cluster.run("topic", "create", "life", "--queues", "3", "--attribute", "message.type=FIFO")
    assert "already" in cluster.run("topic", "create", "life", "--if-missing").stdout
    shown = cluster.json("topic", "show", "life")
    assert len(shown["queues"]) == 3
    assert shown["attributes"] == {"message.type": "FIFO"}
    cluster.run("topic", "update", "life", "--queues", "5")
    listed = {topic["topic"]: topic for topic in cluster.json("topic", "list")}
    assert listed["life"]["queues"] == 5
    cluster.run("topic", "delete", "life")
    assert "life" not in {topic["topic"] for topic in cluster.json("topic", "list")}


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        (["topic", "show", "nowhere"], 1, "nowhere"),
        (["topic", "delete", "nowhere"], 1, "nowhere"),
        (["topic", "create", "no name"], 2, "illegal"),
        (["produce", "nowhere", "--no-create"], 1, "nowhere"),
        (["consume", "nowhere", "--group", "g", "--count", "1"], 1, "nowhere"),
        (["consume", "nowhere", "--group", "no name", "--count", "1"], 2, "illegal"),
        (["group", "show", "nobody"], 1, "nobody"),
        (["offset", "reset", "g", "nowhere", "--to", "first"], 1, "nowhere"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_a_negative_answer_is_one_sentence(
    cluster: Up, arguments: list[str], exit_code: int, told: str
) -> None:
    done = cluster.run(*arguments, given="line\n", expect=exit_code)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("aerobee: ")
    assert told in last
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_groups_show_their_lag_and_can_be_reset(cluster: Up) -> None:
    sent(cluster, "lagging", numbers(100))
    received(cluster, "lagging", "lagger", 60)
    group = cluster.json("group", "show", "lagger")
    assert group["lag"] == 40
    assert sum(queue["committedOffset"] or 0 for queue in group["queueList"]) == 60
    assert "lagger" in {each["group"] for each in cluster.json("group", "list")}
    cluster.run("offset", "reset", "lagger", "lagging", "--to", "last", "--dry-run")
    assert cluster.json("group", "show", "lagger")["lag"] == 40
    cluster.run("offset", "reset", "lagger", "lagging", "--to", "last")
    assert cluster.json("group", "show", "lagger")["lag"] == 0
    cluster.run("offset", "reset", "lagger", "lagging", "--to", "1h")
    assert cluster.json("group", "show", "lagger")["lag"] == 100
    assert len(received(cluster, "lagging", "lagger", 100)) == 100


def test_a_running_member_is_shown_and_leaves_at_sigterm(cluster: Up) -> None:
    sent(cluster, "held", numbers(10))
    member = subprocess.Popen(
        [*AEROBEE, "consume", "held", "--group", "holders", "--client-id", "me"],
        env={**os.environ, "AEROBEE_NAMESERVER": cluster.document()["nameserver"]},
        stdout=subprocess.DEVNULL,
    )
    try:

        def holds_all() -> bool:
            done = subprocess.run(
                [*AEROBEE, "group", "show", "holders", "--json"],
                env={**os.environ, "AEROBEE_NAMESERVER": cluster.document()["nameserver"]},
                capture_output=True,
                text=True,
            )
            if done.returncode:
                return False
            queues = json.loads(done.stdout)["queueList"]
            return bool(queues) and {queue["leaseHolder"] for queue in queues} == {"me"}

        eventually(holds_all, "the member holds all queues")
    finally:
        member.terminate()
    assert member.wait(PATIENCE_S) == 143
    group = cluster.json("group", "show", "holders")
    assert group["members"] == 0
    assert group["lag"] == 0


def test_a_reader_that_has_enough_ends_it_quietly(cluster: Up) -> None:
    sent(cluster, "piped", numbers(20_000))
    member = subprocess.Popen(
        [*AEROBEE, "consume", "piped", "--group", "piped"],
        env={**os.environ, "AEROBEE_NAMESERVER": cluster.document()["nameserver"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert member.stdout is not None
    assert member.stderr is not None
    assert member.stdout.readline().startswith(b"message ")
    member.stdout.close()
    assert member.wait(PATIENCE_S) == 141
    assert member.stderr.read() == b""
    member.stderr.close()
    # What could not be printed is not committed.
    assert cluster.json("group", "show", "piped")["lag"] > 0


def test_the_cluster_shows_its_brokers(cluster: Up) -> None:
    shown = cluster.json("cluster", "show")
    assert [broker["broker"] for broker in shown["brokers"]] == ["broker-a", "broker-b"]
    assert all(broker["role"] == "master" for broker in shown["brokers"])
    assert all(broker["stats"]["writable"] for broker in shown["brokers"])


def test_whatever_is_killed_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        sent(up, "kept", numbers(1_000))
        for turn, name in enumerate(("broker-a", "nameserver", "etcd")):
            before = up.document()["pids"][name]
            os.kill(before, signal.SIGKILL)

            def is_back(name: str = name, before: int = before) -> bool:
                return up.document()["pids"][name] not in (None, before) and up.knows("kept")

            eventually(is_back, f"a new process of {name}, and the topic's queues")
            assert f"{name} ended with signal SIGKILL; starting it again" in up.said()
            more = numbers(10, start=1_000 + 10 * turn)
            sent(up, "kept", more, "--timeout-ms", "30000")
        assert sorted(received(up, "kept", "g", 1_030)) == sorted(numbers(1_030))


def test_a_stopped_folder_goes_on_with_its_messages_and_offsets(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        sent(up, "kept", numbers(100))
        first = received(up, "kept", "g", 60)
        pids = up.pids()
        assert up.end(signal.SIGTERM) == 0
    assert not any(is_alive(pid) for pid in pids)
    assert not up.ready_file.exists()
    with running(tmp_path) as up:
        second = received(up, "kept", "g", 40)
        assert sorted(first + second) == sorted(numbers(100))


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    with running(tmp_path, "--brokers", "2") as up:
        pids = up.pids()
        assert up.end(signal.SIGINT) == 130
        assert up.said().splitlines()[-1] == "stopped"
    assert len(pids) == 4
    assert not any(is_alive(pid) for pid in pids)


def test_a_second_ctrl_c_does_not_wait_for_a_process_that_hangs(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        pids = up.pids()
        os.kill(up.document()["pids"]["broker-a"], signal.SIGSTOP)
        up.process.send_signal(signal.SIGINT)
        eventually(lambda: "stopping brokers" in up.said(), "it is stopping")
        assert up.end(signal.SIGINT) == 130
        assert up.said().splitlines()[-1] == ("aerobee: stopped at once; processes were killed")
    assert not any(is_alive(pid) for pid in pids)


def test_ctrl_c_before_it_is_ready_leaves_no_process(tmp_path: Path) -> None:
    up = Up(tmp_path)
    eventually(lambda: (up.data / "logs" / "broker-a.log").exists(), "a broker was started")
    assert up.end(signal.SIGINT) == 130
    assert processes_naming(up.data) == []
    up.output.close()


def test_a_killed_parent_takes_its_children_with_it(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        sent(up, "kept", numbers(100))
        pids = up.pids()
        up.process.kill()
        up.process.wait()
        eventually(lambda: not any(is_alive(pid) for pid in pids), "all children have ended")
    up.ready_file.unlink()
    with running(tmp_path) as up:
        assert sorted(received(up, "kept", "g", 100)) == sorted(numbers(100))


def test_one_folder_serves_one_cluster(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        second = subprocess.run(
            [*AEROBEE, "up", "--data", str(up.data), "--ports", "auto"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert second.returncode == 3
        assert second.stderr == (
            f"aerobee: the data folder {up.data} is in use by another cluster (process "
            f"{up.process.pid}); stop it or choose another --data\n"
        )


def test_a_broker_refuses_a_folder_that_another_one_uses(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        second = subprocess.run(
            [
                *(*AEROBEE, "broker", "--listen", "127.0.0.1:0", "--nameservers", ""),
                *("--store-root", str(up.data / "brokers" / "broker-a")),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert second.returncode == 3, second.stderr
        assert "Traceback" not in second.stderr


def test_a_port_in_use_is_told_before_anything_is_started(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        done = subprocess.run(
            [
                *(*AEROBEE, "up", "--data", str(tmp_path / "data")),
                *("--nameserver-port", str(port), "--broker-port", "1025", "--etcd-port", "1027"),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 3
    assert done.stderr.startswith(f"aerobee: port {port} (the nameserver) is in use")
    assert done.stderr.count("\n") == 1
    assert list((tmp_path / "data" / "logs").iterdir()) == []


def test_a_wrong_broker_setting_is_told_in_one_sentence(tmp_path: Path) -> None:
    up = Up(tmp_path, "--broker-set", "store.segment_bytes=few")
    assert up.process.wait(PATIENCE_S) == 2
    last = up.said().splitlines()[-1]
    assert last.startswith("aerobee: broker-a did not start:")
    assert "store.segment_bytes" in last
    up.output.close()


def test_a_broker_that_takes_no_messages_is_told_with_its_reason(tmp_path: Path) -> None:
    with running(tmp_path, "--broker-set", "store.disk_free_bytes_min=4611686018427387904") as up:
        said = eventually(lambda: "takes no messages" in up.said() and up.said(), "the reason")
        (line,) = [line for line in said.splitlines() if "takes no messages" in line]
        assert "broker-a" in line
        assert "bytes free, less than the 4611686018427387904 that must stay" in line


def test_an_ephemeral_cluster_removes_its_folder(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    process = subprocess.Popen(
        [*AEROBEE, "up", "--ephemeral", "--ports", "auto", "--ready-file", str(ready_file)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(ready_file.exists, "the ready file")
        folder = Path(json.loads(ready_file.read_text())["data"])
        assert folder.is_dir()
    finally:
        process.terminate()
    assert process.wait(PATIENCE_S) == 0
    assert not folder.exists()


def test_an_unreachable_cluster_is_one_sentence() -> None:
    for arguments in (
        ["topic", "list"],
        ["produce", "t"],
        ["consume", "t", "--group", "g"],
        ["group", "list"],
        ["cluster", "show"],
    ):
        done = subprocess.run(
            [*AEROBEE, *arguments, "--nameserver", "127.0.0.1:1"],
            input="line\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 3, (arguments, done.stderr)
        assert done.stderr.splitlines()[-1] == (
            "aerobee: cannot reach the cluster: no nameserver answers at 127.0.0.1:1; start one "
            "with `aerobee up`, or name another with --nameserver"
        )
        assert "Traceback" not in done.stderr


def test_the_demo_proves_what_it_claims(tmp_path: Path) -> None:
    done = subprocess.run(
        [*AEROBEE, "demo", "--flights", "20000"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 of consumer-2" in done.stdout
    assert "saw 20,000 of 20,000 flights" in done.stdout
    assert "PROVEN: none of 20,000 flights is missing" in done.stdout
    assert list(tmp_path.iterdir()) == []
